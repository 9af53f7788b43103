"""Waits that end in a timeout, or never: who was missed, and who only reported it."""

from tests.diagnose.logs.wild.lines import at, glog, going_down, megatron, observed, text, timeout, titan
from tests.diagnose.logs.wild.model import Files, Wild

UNKNOWN = ("inconclusive",)


def one_file_of_eight() -> Files:
    """Only rank 3's file was saved; it timed out like everybody may have."""
    return {"rank3.err": text(titan(range(1, 30), 0), timeout(3, 700, 412), going_down(3, 760))}


def first_reporter() -> Files:
    """Ranks 0-7 all time out at one number; rank 2 is named by all because it reported first."""
    files: Files = {}
    for rank in range(8):
        t = 700.0 if rank == 2 else 700.4 + rank / 100
        seen = (
            []
            if rank == 2
            else [
                f"[rank{rank}]:{glog(701, file='ProcessGroupNCCL.cpp:1620')} [PG ID 0 PG GUID "
                f"0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout "
                "from  rank 2 and we will try our best to dump the debug info."
            ]
        )
        files[f"rank{rank}.log"] = text(
            titan(range(1, 30), 0), timeout(rank, t, 412), seen, going_down(rank, 760)
        )
    return files


def rank0_evaluates() -> Files:
    """Rank 0 alone evaluates for longer than the limit; the others wait for it at a barrier."""
    files: Files = {}
    for rank in range(8):
        rows = titan(range(1, 30), 0)
        rows += (
            [
                f"[rank0]: {at(100)} Running evaluation on 12000 samples (rank 0 only)",
                *[f"[rank0]: {at(100 + 60 * n)} eval batch {n}/40" for n in range(11)],
            ]
            if rank == 0
            else timeout(rank, 700.2, 412, "ALLREDUCE", 1)
        )
        files[f"rank{rank}.log"] = text(rows)
    return files


def preprocess_on_main() -> Files:
    """accelerate's main_process_first: rank 0 tokenises, the others wait in a barrier; one log."""
    rows = [
        f"{at(0)} Tokenizing train dataset on the main process",
        "Running tokenizer on dataset:   3%|▎         | 31000/1000000 [29:10<15:12:11, 17.70 examples/s]",
    ]
    for rank in range(1, 4):
        rows += timeout(rank, 1801, 1, "ALLREDUCE", 1, 1_800_000)
    return {"train.log": text(rows)}


def expert_groups() -> Files:
    """Ranks in a group have group ranks: "Rank 1" of the expert group is global rank 5, which is a victim."""
    files: Files = {}
    for rank in (4, 5, 6):
        files[f"rank{rank}.log"] = text(
            megatron(range(1, 20), 0),
            timeout(
                rank,
                800,
                91,
                "ALLTOALL_BASE",
                8192,
                group="17(EXPERT_MODEL_PARALLEL_GROUP)",
                group_id=9,
                group_rank=rank - 4,
            ),
        )
    return files


def pipeline_recv() -> Files:
    """Pipeline stages wait in RECV for the stage before; stage 0 says nothing."""
    files: Files = {"rank0.log": text(megatron(range(1, 20), 0))}
    for rank in range(1, 4):
        files[f"rank{rank}.log"] = text(
            megatron(range(1, 20), 0),
            timeout(
                rank,
                800 + rank * 0.01,
                77,
                "RECV",
                4_194_304,
                group="21(PIPELINE_MODEL_PARALLEL_GROUP)",
                group_id=4,
            ),
        )
    return files


def clocks_in_zones() -> Files:
    """Two nodes, one in UTC and one an hour ahead in its own zone: the same wait, no order to be read off."""
    files: Files = {}
    for rank in range(8):
        shift = 3600.0 if rank >= 4 else 0.0
        host = "gpu-a1" if rank < 4 else "gpu-b2"
        files[f"{host}/rank{rank}.log"] = text(
            titan(range(1, 30), shift),
            timeout(rank, 700 + shift + rank / 1000, 412),
            going_down(rank, 760 + shift),
        )
    return files


def skip_in_zones() -> Files:
    """The same two clocks, and rank 6 one collective behind while it waits itself."""
    files: Files = {}
    for rank in range(8):
        shift = 3600.0 if rank >= 4 else 0.0
        host = "gpu-a1" if rank < 4 else "gpu-b2"
        seq = 411 if rank == 6 else 412
        numel = 64 if rank == 6 else 4096
        files[f"{host}/rank{rank}.log"] = text(
            titan(range(1, 30), shift),
            timeout(rank, 700 + shift + rank / 1000, seq, numel=4096 if rank != 6 else numel),
        )
    return files


def stopped_steps_only() -> Files:
    """The last line is a step, two hours before the scheduler's TIME LIMIT: hung, but nobody says where."""
    return {
        "slurm-88.out": text(
            megatron(range(1, 20), 0),
            [
                "slurmstepd: error: *** JOB 88 ON gpu-a1 CANCELLED AT "
                f"{at(7300, '%Y-%m-%dT%H:%M:%S')} DUE TO TIME LIMIT ***"
            ],
        )
    }


def observers_and_silent() -> Files:
    """Seven time out or observe; rank 4 has a file with steps only."""
    files: Files = {}
    for rank in range(8):
        tail = [] if rank == 4 else [observed(rank, 701)] if rank in (6, 7) else timeout(rank, 700, 412)
        files[f"rank{rank}.log"] = text(titan(range(1, 30), 0), tail)
    return files


def suspended_laptop() -> Files:
    """Hours over the limit on all: the machine slept; durations prove nothing."""
    rows = titan(range(1, 30), 0)
    for rank in range(2):
        rows += [r.replace("ran for 60", "ran for 3628060") for r in timeout(rank, 40000, 412)]
    return {"out.txt": text(rows)}


def heartbeat_on_save() -> Files:
    """The watchdog of rank 0 gets stuck while it saves: a save of nine minutes on a slow store."""
    rows = [
        *titan(range(1, 30), 0),
        f"[rank0]: {at(100)} Saving checkpoint to /mnt/slow/step-29",
        f"[rank0]:{glog(590, file='ProcessGroupNCCL.cpp:1542')} [PG ID 0 PG GUID 0(default_pg) Rank "
        "0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in "
        "monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., "
        "CudaEventDestroy) hang blocking the watchdog, and could be triggered by another thread "
        "holding the GIL inside a CUDA api (for example, CudaEventDestroy)",
        f"[rank0]:{glog(591, file='ProcessGroupNCCL.cpp:1549')} [PG ID 0 PG GUID 0(default_pg) Rank "
        "0] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL "
        "watchdog hang.",
    ]
    return {"train.log": text(rows)}


def ray_dedup() -> Files:
    """Ray tells one timeout and how many more; the ranks are not known."""
    front = "(WorkerDict pid=2314, ip=10.0.0.5) "
    rows = [f"(TaskRunner pid=4030) step:{n} - actor/loss:0.01" for n in range(1, 12)]
    rows += [
        front + r
        for r in timeout(3, 1900, 5012, "_ALLGATHER_BASE", 1_048_576, 600_000, out=8_388_608, own=False)
    ]
    rows[-2] += " [repeated 6x across cluster]"
    rows[-1] += " [repeated 6x across cluster]"
    return {"driver.log": text(rows)}


def two_groups_two_stories() -> Files:
    """Tensor group of ranks 0-3 waits for rank 2, which waits in the default group for the rest: a circle."""
    files: Files = {}
    for rank in range(8):
        rows = megatron(range(1, 20), 0)
        if rank in (0, 1, 3):
            rows += timeout(
                rank,
                800,
                55,
                "ALLREDUCE",
                1024,
                group="3(TENSOR_MODEL_PARALLEL_GROUP)",
                group_id=2,
                group_rank=rank,
            )
        else:
            rows += timeout(rank, 800, 9, "ALLREDUCE", 1)
        files[f"rank{rank}.log"] = text(rows)
    return files


def slow_start() -> Files:
    """The store is not reached: one node started late; clients time out at 0 of anything."""
    files: Files = {}
    for rank in range(4):
        files[f"rank{rank}.log"] = text(
            [
                f"[rank{rank}]: Traceback (most recent call last):",
                f'[rank{rank}]:   File "/workspace/train.py", line 10, in <module>',
                f"[rank{rank}]:     dist.init_process_group('nccl')",
                f"[rank{rank}]: torch.distributed.DistStoreError: Timed out after 601 seconds "
                "waiting for clients. 4/8 clients joined.",
            ]
        )
    return files


def healthy_dump_on_demand() -> Files:
    """Somebody asked for a flight recorder dump of a healthy job: dump words, and steps go on."""
    rows = [
        *titan(range(1, 30), 0),
        f"[rank0]:{glog(100, 'I', 'ProcessGroupNCCL.cpp:1400')} [PG ID 0 PG GUID 0(default_pg) Rank "
        "0] ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1",
        f"[rank0]:{glog(101, 'I', 'FlightRecorder.cpp:30')} Finished flight recorder successfully. "
        "Output can be analyzed using the fr_trace script.",
        *titan(range(30, 60), 103),
        f"[titan] {at(300)} - root - INFO - Training completed",
    ]
    return {"train.log": text(rows)}


INCIDENTS = (
    Wild("one_file_of_eight", one_file_of_eight, UNKNOWN, may_convict=(), world=8),
    Wild("first_reporter", first_reporter, ("fabric_stalled", "inconclusive"), calm=True),
    Wild(
        "rank0_evaluates", rank0_evaluates, ("rank_stalled", "inconclusive"), suspects=(0,), may_convict=(0,)
    ),
    Wild(
        "preprocess_on_main",
        preprocess_on_main,
        ("rank_stalled", "inconclusive", "init_stuck"),
        may_convict=(0,),
    ),
    Wild("expert_groups", expert_groups, UNKNOWN, may_convict=()),
    Wild("pipeline_recv", pipeline_recv, ("inconclusive", "rank_stalled"), may_convict=()),
    Wild("clocks_in_zones", clocks_in_zones, ("fabric_stalled", "inconclusive"), calm=True),
    Wild(
        "skip_in_zones",
        skip_in_zones,
        ("collective_skipped", "collective_size_mismatch", "inconclusive", "collective_type_mismatch"),
        suspects=(6,),
        may_convict=(6,),
    ),
    Wild("stopped_steps_only", stopped_steps_only, ("external_stop", "inconclusive"), calm=True),
    Wild(
        "observers_and_silent",
        observers_and_silent,
        ("inconclusive", "rank_stalled"),
        suspects=(4,),
        may_convict=(),
    ),
    Wild("suspended_laptop", suspended_laptop, ("inconclusive", "fabric_stalled"), calm=True),
    Wild(
        "heartbeat_on_save",
        heartbeat_on_save,
        ("rank_stalled", "checkpoint_slow", "inconclusive"),
        may_convict=(0,),
    ),
    Wild("ray_dedup", ray_dedup, UNKNOWN, may_convict=()),
    Wild(
        "two_groups_two_stories",
        two_groups_two_stories,
        ("inconclusive", "collective_order_mismatch", "collective_skipped", "rank_stalled"),
        may_convict=(2,),
    ),
    Wild("slow_start", slow_start, ("init_stuck",), may_convict=(4, 5, 6, 7)),
    Wild("healthy_dump_on_demand", healthy_dump_on_demand, ("healthy", "inconclusive"), calm=True),
)
