"""Evidence that points at the wrong rank: labels that are no ranks, reports of others' errors, old news."""

from tests.diagnose.logs.wild.lines import (
    at,
    block,
    closing,
    failed,
    glog,
    going_down,
    megatron,
    text,
    timeout,
    titan,
    trace,
)
from tests.diagnose.logs.wild.model import Files, Wild


def label_is_node() -> Files:
    """srun --label in front of an agent a node: `2: ` is the third machine, not rank 2."""
    rows = [f"0: {r}" for r in megatron(range(1, 20), 0)]
    rows += [f"{n}: loading weights of the shard" for n in range(4)]
    rows += [
        f"0: gpu-a1:{8000 + r}:{8100 + r} [{r}] NCCL INFO ncclCommInitRankConfig comm 0x55d0{r} "
        f"rank {r} nranks 32 cudaDev {r} nvmlDev {r} busId {1 + r}b000 commId 0x9d3 - Init COMPLETE"
        for r in range(8)
    ]
    rows += [f"2: {r}" for r in trace("KeyError: 'labels'", file="/workspace/collate.py")]
    return {"slurm-88.out": text(rows)}


def label_is_node_unstated() -> Files:
    """The same without NCCL's lines: nothing states a world size, and a label may still be a machine."""
    rows = [f"0: {r}" for r in megatron(range(1, 20), 0)]
    rows += [f"{n}: starting 8 workers with torchrun" for n in range(4)]
    rows += [f"2: {r}" for r in trace("KeyError: 'labels'", file="/workspace/collate.py")]
    return {"slurm-88.out": text(rows)}


def bracket_is_node() -> Files:
    """A wrapper writes `[node1]: ` before every line: a machine, not a local rank."""
    rows = [f"[node0]: {r}" for r in titan(range(1, 30), 0)]
    rows += [f"[node{n}]: torch 2.6.0 on 8 cards" for n in range(4)]
    rows += [f"[node1]: {r}" for r in trace("KeyError: 'labels'", file="/workspace/collate.py")]
    return {"all.log": text(rows)}


def bracket_is_stage() -> Files:
    """`[stage3]: ` is a part of the program; one log, nobody's rank known."""
    rows = titan(range(1, 30), 0)
    rows += [f"[stage{n}]: layers {8 * n}-{8 * n + 7} built" for n in range(4)]
    rows += [f"[stage3]: {r}" for r in trace("KeyError: 'labels'", file="/workspace/collate.py")]
    return {"train.log": text(rows)}


def node_rank_files() -> Files:
    """rank_0.log and rank_1.log are the agents' of two nodes of four ranks each."""
    files: Files = {}
    for node in range(2):
        rows = [f"[rank{4 * node + r}]: ready" for r in range(4)] + (
            titan(range(1, 30), 0) if node == 0 else []
        )
        if node == 1:
            rows += [
                "done with warm-up",
                "",
                "",
                "",
                *trace("KeyError: 'labels'", file="/workspace/collate.py"),
            ]
        files[f"rank_{node}.log"] = text(rows)
    return files


def mesh_file_names() -> Files:
    """Files named by coordinates of the mesh: tp_rank_3 is no global rank."""
    files: Files = {}
    for pp in range(2):
        for tp in range(4):
            files[f"logs/pp_rank_{pp}_tp_rank_{tp}.log"] = text(
                titan(range(1, 30), 0),
                trace("KeyError: 'labels'", file="/workspace/collate.py") if (pp, tp) == (1, 3) else [],
            )
    return files


def two_run_folders() -> Files:
    """Two agents in one folder, both with local ranks 0 to 3, and an exception without any prefix in one."""
    files: Files = {}
    for run in ("none_ab12", "none_cd34"):
        for local in range(4):
            rows = titan(range(1, 30), 0) if run == "none_ab12" and local == 0 else ["ready"]
            files[f"{run}/attempt_0/{local}/stderr.log"] = text(
                rows,
                trace("KeyError: 'labels'", file="/workspace/collate.py")
                if (run, local) == ("none_cd34", 1)
                else [],
            )
    return files


def pods_of_one() -> Files:
    """A master and three workers, one card each: worker-1 is rank 2."""
    files: Files = {"train-master-0.log": text(titan(range(1, 30), 0))}
    for n in range(3):
        files[f"train-worker-{n}.log"] = text(
            ["ready"], trace("KeyError: 'labels'", file="/workspace/collate.py") if n == 1 else []
        )
    return files


def two_agents_unlabelled() -> Files:
    """Two agents write into one file, nobody has a prefix: local rank 1 is rank 1 or rank 5."""
    rows = [*titan(range(1, 30), 0), *closing(100, (600, 602, 603)), *failed(101, -11, 1, 601)]
    rows += [r.replace(" 4100 ", " 7200 ") for r in closing(104, (500, 501, 502, 503))]
    return {"slurm-88.out": text(rows)}


def handled_oom_rank0_logs() -> Files:
    """Rank 2 catches an OOM at warm-up; only rank 0 prints steps; an hour later rank 6 really fails."""
    rows = [
        "[rank2]: " + r
        for r in (
            f"{at(5)} INFO batch size 64 does not fit, trying 32:",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.",
        )
    ]
    rows += titan(range(1, 900), 10, front="[rank0]: ")
    rows += [
        f"[rank6]: {at(3000)} ERROR crashed",
        *trace("KeyError: 'labels'", 6, file="/workspace/collate.py"),
    ]
    return {"train.log": text(rows)}


def handled_sample_rank0_logs() -> Files:
    """Rank 3 logs a broken sample with its traceback and goes on; rank 0 prints steps; then a cancel."""
    rows = [
        f"[rank3]: {at(50)} WARNING skipping sample 991:",
        *trace(
            "PIL.UnidentifiedImageError: cannot identify image file",
            3,
            file="/workspace/dataset.py",
            function="__getitem__",
        ),
    ]
    rows += titan(range(20, 900), 60, front="[rank0]: ")
    rows += [
        f"slurmstepd: error: *** JOB 88 ON gpu-a1 CANCELLED AT {at(2705, '%Y-%m-%dT%H:%M:%S')} DUE "
        "TO PREEMPTION ***"
    ]
    return {"train.log": text(rows)}


def store_get_victim() -> Files:
    """Rank 0 segfaulted (its file just ends); rank 2 cannot fetch NCCL's id from it, and says so."""
    said = (
        "RuntimeError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
        "key-value store by key '0', but store->get('0') got error: Connection reset by peer"
    )
    return {
        "rank0.log": text(["loading weights"]),
        "rank1.log": text(["loading weights"]),
        "rank2.log": text(trace(said, 2)),
        "rank3.log": text(["loading weights"]),
    }


def old_store_reset() -> Files:
    """torch 1.x: `RuntimeError: Connection reset by peer` of the store is what is left of a lost rank 0."""
    rows = trace(
        "RuntimeError: Connection reset by peer",
        file="/opt/conda/lib/python3.8/site-packages/torch/distributed/distributed_c10d.py",
        function="_new_process_group_helper",
    )
    return {
        "rank0.log": text(["loading"]),
        "rank1.log": text(["loading"]),
        "rank2.log": text(["loading"], rows),
        "rank3.log": text(["loading"]),
    }


def checkpoint_exception_elsewhere() -> Files:
    """A distributed save fails on rank 5; rank 0's log, the only one kept, raises it for all."""
    said = (
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([5])\n"
        "Traceback (most recent call last): (RANK 5)\n"
        '  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/checkpoint/utils.py", '
        "line 163, in reduce_scatter\n"
        "    local_data = map_fun()\n"
        "OSError: [Errno 28] No space left on device: '/ckpt/step-30/__5_0.distcp'"
    )
    return {
        "rank0.log": text(
            titan(range(1, 30), 0),
            trace(
                said,
                0,
                file="/opt/conda/lib/python3.11/site-packages/torch/distributed/checkpoint/utils.py",
                function="all_reduce",
            ),
        )
    }


def ddp_same_model() -> Files:
    """DDP compares models with rank 0's: rank 2 raises, but whose model is odd it does not know."""
    return {
        "rank0.log": text(["building model"]),
        "rank1.log": text(["building model"]),
        "rank2.log": text(
            trace(
                "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 128 params, "
                "while rank 0 has inconsistent 0 params.",
                2,
            )
        ),
        "rank3.log": text(["building model"]),
    }


def forward_order() -> Files:
    """FSDP: the order of rank 0 against that of rank 3; the only log kept is rank 1's."""
    said = (
        "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 1 parameters while rank 3 "
        "is all-gathering 2 parameters"
    )
    return {"rank1.log": text(titan(range(1, 30), 0), trace(said, 1))}


def disagreement() -> Files:
    """DeepSpeed: rank 0's and rank 3's lists differ; rank 1 prints it."""
    said = "RuntimeError: disagreement between rank0 and rank3: rank0: [12, 13], rank3: [12, 14]"
    return {
        "rank0.log": text(["partitioning"]),
        "rank1.log": text(trace(said, 1)),
        "rank2.log": text(["partitioning"]),
        "rank3.log": text(["partitioning"]),
    }


def skewed_exceptions() -> Files:
    """Two machines, one clock a minute behind: rank 6's later error has the earlier time."""
    files: Files = {}
    for rank in range(8):
        lag = 60.0 if rank >= 4 else 0.0
        rows = titan(range(1, 60), 1000 - lag, front=f"[rank{rank}]: ")
        if rank == 1:
            rows += [
                f"[rank1]: {at(1180)} ERROR crashed",
                *trace("KeyError: 'labels'", 1, file="/workspace/collate.py"),
            ]
        if rank == 6:
            rows += [
                f"[rank6]: {at(1190 - lag)} ERROR crashed",
                *trace("ValueError: reply of rank 1 is empty", 6, file="/workspace/exchange.py"),
            ]
        files[f"{'gpu-a1' if rank < 4 else 'gpu-b2'}/rank{rank}.log"] = text(rows)
    return files


def old_xid() -> Files:
    """A kernel log of weeks: the XID is a week older than the job, which ran to its end."""
    init = [
        f"gpu-a1:{8000 + r}:{8100 + r} [{r}] NCCL INFO ncclCommInitRankConfig comm 0x55d0{r} rank "
        f"{r} nranks 4 cudaDev {r} nvmlDev {r} busId {1 + r}b000 commId 0x9d3 - Init COMPLETE"
        for r in range(4)
    ]
    kernel = [
        "[Sat Mar  7 11:00:01 2026] NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', "
        "name=<unknown>, GPU has fallen off the bus.",
        "[Sat Mar  7 12:00:01 2026] reboot: Restarting system",
        "[Sat Mar 14 01:00:01 2026] NVRM: loading NVIDIA UNIX Open Kernel Module",
    ]
    return {
        "gpu-a1.log": text(
            init, titan(range(1, 60), 0), f"[titan] {at(300)} - root - INFO - Training completed"
        ),
        "dmesg-gpu-a1.txt": text(kernel),
    }


def old_xid_then_failure() -> Files:
    """The same old XID, and a job in which rank 3 raises an exception of its own."""
    files = old_xid()
    files["gpu-a1.log"] = text(
        str(files["gpu-a1.log"]).replace("Training completed", "step done").rstrip(),
        trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
    )
    return files


def xid_of_stranger() -> Files:
    """A kernel log of a machine that is not in the job; its bus ids are those of every machine."""
    files = old_xid()
    files["dmesg-gpu-z9.txt"] = text(
        [
            f"{at(120, '%b %d %H:%M:%S')} gpu-z9 kernel: NVRM: Xid (PCI:0000:2b:00): 79, "
            "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
        ]
    )
    files.pop("dmesg-gpu-a1.txt")
    files["gpu-a1.log"] = text(
        str(files["gpu-a1.log"]).replace("Training completed", "step done").rstrip(),
        trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
    )
    return files


def kernel_kills_other() -> Files:
    """The OOM killer took somebody's notebook; the job ran to its end."""
    kernel = [
        f"{at(120, '%b %d %H:%M:%S')} gpu-a1 kernel: Out of memory: Killed process 99120 "
        "(jupyter-lab) total-vm:9812kB, anon-rss:8123kB"
    ]
    return {
        "train.log": text(titan(range(1, 60), 0), f"[titan] {at(300)} - root - INFO - Training completed"),
        "syslog": text(kernel),
    }


def appended_runs() -> Files:
    """`>> train.log` of two runs: the first died of rank 3's OOM, the second of rank 1's bug."""
    rows = [
        *titan(range(1, 30), 0),
        *trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            3,
            file="/workspace/model.py",
        ),
        "$ torchrun --nproc-per-node 4 train.py --micro-batch 1",
    ]
    rows += [*titan(range(1, 60), 4000), *trace("KeyError: 'labels'", 1, file="/workspace/collate.py")]
    return {"train.log": text(rows)}


def mesh_sisters() -> Files:
    """Sister groups of a mesh share one id: ranks 0-3 wait in 55, and of the other four rank 6 in 57."""
    files: Files = {}
    for rank in (0, 1, 2, 3, 6):
        files[f"rank{rank}.log"] = text(
            titan(range(1, 30), 0),
            timeout(rank, 700, 57 if rank == 6 else 55, group="3(mesh_tp)", group_id=1, group_rank=rank % 4),
        )
    for rank in (4, 5, 7):
        files[f"rank{rank}.log"] = text(titan(range(1, 30), 0))
    return files


def mesh_sisters_sizes() -> Files:
    """Sister groups again, of pipeline stages with layers of different sizes: no mismatch."""
    files: Files = {}
    for rank in (0, 1, 2, 3, 5):
        files[f"rank{rank}.log"] = text(
            titan(range(1, 30), 0),
            timeout(
                rank,
                700,
                55,
                numel=800 if rank == 5 else 1000,
                group="3(mesh_dp)",
                group_id=1,
                group_rank=rank % 4,
            ),
        )
    for rank in (4, 6, 7):
        files[f"rank{rank}.log"] = text(titan(range(1, 30), 0))
    return files


def pipeline_edges() -> Files:
    """The first stage of a pipeline has half as many sends and receives as the inner ones."""
    files: Files = {}
    for rank in range(4):
        files[f"rank{rank}.log"] = text(
            megatron(range(1, 20), 0),
            timeout(
                rank,
                800,
                40 if rank == 0 else 80,
                "SEND" if rank == 0 else "RECV",
                4_194_304,
                group="21(PIPELINE_MODEL_PARALLEL_GROUP)",
                group_id=4,
            ),
        )
    return files


def epoch_is_no_end() -> Files:
    """Rank 0 says that it finished an epoch and evaluates; the others go on to a barrier and time out."""
    files: Files = {}
    for rank in range(8):
        rows = titan(range(1, 30), 0, front=f"[rank{rank}]: ")
        rows += (
            [f"[rank0]: {at(95)} Finished training epoch 3, starting evaluation"]
            if rank == 0
            else [*titan([30], 97, front=f"[rank{rank}]: "), *timeout(rank, 700, 412, "ALLREDUCE", 1)]
        )
        files[f"rank{rank}.log"] = text(rows)
    return files


def segv_in_aftermath() -> Files:
    """All time out; while their processes go down rank 5 crashes with a segmentation fault."""
    files: Files = {
        f"rank{r}.log": text(titan(range(1, 30), 0), timeout(r, 700, 412), going_down(r, 760))
        for r in range(8)
    }
    files["agent.log"] = text(
        failed(762, -6, 3, 503),
        block(762, (3, 3, -6, 503), [(r, r, -11 if r == 5 else -6, 500 + r) for r in range(8) if r != 3]),
    )
    return files


def loader_killed_in_cleanup() -> Files:
    """Rank 3 raises; half a minute later the clean-up kills rank 1's loader workers, which rank 1 reports."""
    rows = [
        *titan(range(1, 30), 0),
        *trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
        *closing(100, (500, 501, 502)),
    ]
    rows += trace(
        "RuntimeError: DataLoader worker (pid 9120) is killed by signal: Killed. ",
        1,
        file="/opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
        function="_try_get_data",
    )
    return {"train.log": text(rows, failed(131, 1, 3, 503), block(100, (3, 3, 1, 503), [(1, 1, 1, 501)]))}


def quoted_rank() -> Files:
    """Rank 0's monitor repeats what rank 3 said yesterday; today rank 5 fails."""
    rows = [
        *titan(range(1, 30), 0),
        "monitor: incident of yesterday, for reference: [rank3]: RuntimeError: CUDA error: an "
        "illegal memory access was encountered",
        *titan(range(30, 50), 90),
    ]
    return {"train.log": text(rows, trace("KeyError: 'labels'", 5, file="/workspace/collate.py"))}


def address_in_use() -> Files:
    """Rank 0 cannot open the store's port; the others wait for it in vain."""
    files: Files = {
        "rank0.log": text(
            trace(
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
                "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
                "message: address already in use",
                0,
            )
        )
    }
    for rank in range(1, 4):
        files[f"rank{rank}.log"] = text(
            trace(
                "torch.distributed.DistNetworkError: The client socket has timed out after "
                "600000ms while trying to connect to (gpu-a1, 29500).",
                rank,
            )
        )
    return files


def driver_wraps() -> Files:
    """An engine on rank 0 repeats that a worker failed; the worker is rank 2."""
    rows = [
        *trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a "
            "total capacity of 79.11 GiB",
            2,
            file="/workspace/model.py",
        ),
        *trace(
            "RuntimeError: Worker failed with error 'CUDA out of memory', please check the stack "
            "trace above for the root cause",
            0,
            file="/workspace/executor.py",
        ),
    ]
    return {"train.log": text(rows)}


def bash_killed() -> Files:
    """A shell says Killed; the process is the launcher or a rank, nobody knows."""
    return {
        "slurm-88.out": text(
            megatron(range(1, 20), 0),
            "/var/spool/slurmd/job88/slurm_script: line 40:  4100 Killed                  python train.py",
        )
    }


def fatal_python() -> Files:
    """faulthandler on rank 3: a segmentation fault with Python's stack."""
    rows = [
        *titan(range(1, 30), 0),
        *(
            "[rank3]: " + r
            for r in (
                "Fatal Python error: Segmentation fault",
                "",
                "Current thread 0x00007f2a (most recent call first):",
                '  File "/workspace/kernels.py", line 88 in fused',
            )
        ),
        *closing(100, (500, 501, 502)),
        *failed(101, -11, 3, 503),
    ]
    return {"train.log": text(rows)}


def heartbeat_of_one_log() -> Files:
    """One log of a heartbeat that stopped, of eight: that rank may just be the one that was kept."""
    rows = [
        *titan(range(1, 30), 0),
        f"[rank4]:{glog(590, file='ProcessGroupNCCL.cpp:1542')} [PG ID 0 PG GUID 0(default_pg) Rank "
        "4] Heartbeat monitor timed out! Process will be terminated after dumping debug info. "
        "workMetaList_.size()=3",
    ]
    return {"rank4.log": text(rows)}


def half_joined() -> Files:
    """The store counts six of eight; two files are at hand: the missing two are not named by that."""
    said = (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. "
        "6/8 clients joined."
    )
    return {f"rank{r}.log": text(trace(said, r)) for r in (0, 1)}


def jobs_a_day_apart() -> Files:
    """Two jobs of one folder hung a day apart: rank 2 of the first is not ahead of the second's ranks."""
    first = [row for r in (0, 1, 2) for row in timeout(r, 700, 412)]
    second = [row for r in (3, 0, 1) for row in timeout(r, 90_000, 9)]
    return {"slurm-1.out": text(first), "slurm-2.out": text(second)}


def jobs_of_two_folders() -> Files:
    """The same with a file a rank, each job in its folder, and one file of the first is left."""
    files: Files = {"job1/rank3.log": text(titan(range(1, 30), 0), timeout(3, 700, 411))}
    for rank in (0, 1, 2):
        files[f"job2/rank{rank}.log"] = text(titan(range(1, 30), 80_000), timeout(rank, 90_000, 412))
    return files


def xid_of_other_process() -> Files:
    """XID 43 of a process that is none of the job's, on a shared machine; the job trains on."""
    files = old_xid()
    files.pop("dmesg-gpu-a1.txt")
    files["dmesg"] = text(
        [
            f"{at(30, '%b %d %H:%M:%S')} gpu-a1 kernel: NVRM: Xid (PCI:0000:2b:00): 43, pid=77123, "
            "name=python3, Ch 00000008"
        ]
    )
    return files


def barrier_in_group() -> Files:
    """A monitored barrier of ranks 4-7: its "Rank 2" is rank 6. In the group of all only rank 0 reports."""
    files: Files = {f"rank{r}.log": text(titan(range(1, 9), 0)) for r in range(8)}
    said = "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 30000 ms"
    files["rank4.log"] = text(titan(range(1, 9), 0), trace(said, 4))
    return files


def desync_in_group() -> Files:
    """A desync report of the group of ranks 4-7, in rank 4's log: its rank 2 is rank 6."""
    rows = timeout(4, 700, 17, group="3(TENSOR_MODEL_PARALLEL_GROUP)", group_id=1, group_rank=0)
    rows += ["\t - [2] finished collective #16, but didn't join collective #17 (count from 1)"]
    rows += ["\t - [0, 1, 3] joined but didn't finish collective #17 (count from 1)"]
    return {"rank4.log": text(titan(range(1, 9), 0), rows), "rank2.log": text(titan(range(1, 9), 0))}


def detail_in_group() -> Files:
    """The debug wrapper compares ranks 4-7 by their ranks in the group: the odd one, 2, is rank 6."""

    def mark(op: str, shape: int) -> str:
        return (
            f"CollectiveFingerPrint(SequenceNumber=17, OpType={op}, TensorShape=[{shape}], "
            "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, "
            "layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), "
            "memory_format=(nullopt)))"
        )

    usual, odd = mark("ALLREDUCE", 4096), mark("ALLGATHER", 64)
    files: Files = {f"rank{r}.log": text(titan(range(1, 9), 0)) for r in range(4)}
    for inside in range(4):
        mine, other, its = (odd, 0, usual) if inside == 2 else (usual, 2, odd)
        said = (
            "RuntimeError: Detected mismatch between collectives on ranks. "
            f"Rank {inside} is running collective: {mine}, but Rank {other} is running collective: {its}."
        )
        files[f"rank{4 + inside}.log"] = text(titan(range(1, 9), 0), trace(said, 4 + inside))
    return files


SOFT = ("software_error", "inconclusive")
INCIDENTS = (
    Wild("label_is_node", label_is_node, SOFT),
    Wild("label_is_node_unstated", label_is_node_unstated, SOFT),
    Wild("bracket_is_node", bracket_is_node, SOFT),
    Wild("bracket_is_stage", bracket_is_stage, SOFT),
    Wild("node_rank_files", node_rank_files, SOFT),
    Wild("mesh_file_names", mesh_file_names, SOFT, may_convict=(7,)),
    Wild("two_run_folders", two_run_folders, SOFT),
    Wild("pods_of_one", pods_of_one, SOFT, may_convict=(2,)),
    Wild("two_agents_unlabelled", two_agents_unlabelled, ("rank_exited", "inconclusive")),
    Wild("handled_oom_rank0_logs", handled_oom_rank0_logs, SOFT, culprits=(6,)),
    Wild(
        "handled_sample_rank0_logs", handled_sample_rank0_logs, ("external_stop", "inconclusive"), calm=True
    ),
    Wild("store_get_victim", store_get_victim, ("init_stuck", "inconclusive", "rank_exited")),
    Wild("old_store_reset", old_store_reset, ("init_stuck", "inconclusive", "rank_exited", "software_error")),
    Wild(
        "checkpoint_exception_elsewhere",
        checkpoint_exception_elsewhere,
        ("checkpoint_failed",),
        may_convict=(5,),
        suspects=(5,),
    ),
    Wild("ddp_same_model", ddp_same_model, SOFT),
    Wild("forward_order", forward_order, (*SOFT, "collective_order_mismatch", "collective_type_mismatch")),
    Wild("disagreement", disagreement, SOFT),
    Wild("skewed_exceptions", skewed_exceptions, SOFT, may_convict=(1,)),
    Wild("old_xid", old_xid, ("healthy", "inconclusive"), calm=True),
    Wild("old_xid_then_failure", old_xid_then_failure, ("software_error",), culprits=(3,)),
    Wild(
        "xid_of_stranger",
        xid_of_stranger,
        ("software_error", "hardware_fault", "inconclusive"),
        may_convict=(3,),
    ),
    Wild("jobs_a_day_apart", jobs_a_day_apart, ("inconclusive", "fabric_stalled"), world=4),
    Wild("jobs_of_two_folders", jobs_of_two_folders, ("inconclusive", "fabric_stalled"), world=4),
    Wild("xid_of_other_process", xid_of_other_process, ("healthy", "inconclusive"), calm=True),
    Wild(
        "barrier_in_group",
        barrier_in_group,
        ("rank_stalled", "inconclusive"),
        may_convict=(6,),
        never=(2,),
        world=8,
    ),
    Wild(
        "desync_in_group",
        desync_in_group,
        ("rank_stalled", "inconclusive"),
        may_convict=(6,),
        never=(2,),
        world=8,
    ),
    Wild(
        "detail_in_group",
        detail_in_group,
        ("collective_type_mismatch", "inconclusive"),
        may_convict=(6,),
        never=(2,),
        not_said=("nothing in",),
        world=8,
    ),
    Wild("kernel_kills_other", kernel_kills_other, ("healthy", "inconclusive"), calm=True),
    Wild("appended_runs", appended_runs, ("software_error",), culprits=(1,)),
    Wild("mesh_sisters", mesh_sisters, ("inconclusive", "fabric_stalled")),
    Wild("mesh_sisters_sizes", mesh_sisters_sizes, ("inconclusive", "fabric_stalled")),
    Wild("pipeline_edges", pipeline_edges, ("inconclusive", "p2p_mismatch")),
    Wild(
        "epoch_is_no_end", epoch_is_no_end, ("rank_stalled", "inconclusive"), suspects=(0,), may_convict=(0,)
    ),
    Wild("segv_in_aftermath", segv_in_aftermath, ("fabric_stalled", "inconclusive"), calm=True, world=8),
    Wild(
        "loader_killed_in_cleanup",
        loader_killed_in_cleanup,
        ("software_error",),
        suspects=(3,),
        may_convict=(3,),
    ),
    Wild("quoted_rank", quoted_rank, ("software_error",), culprits=(5,)),
    Wild(
        "address_in_use", address_in_use, ("init_stuck", "software_error", "inconclusive"), may_convict=(0,)
    ),
    Wild("driver_wraps", driver_wraps, ("device_oom",), suspects=(2,), may_convict=(2,)),
    Wild("bash_killed", bash_killed, ("rank_exited", "host_oom", "inconclusive"), calm=True),
    Wild("fatal_python", fatal_python, ("rank_exited",), culprits=(3,)),
    Wild("heartbeat_of_one_log", heartbeat_of_one_log, ("inconclusive", "rank_stalled"), world=8),
    Wild("half_joined", half_joined, ("init_stuck", "inconclusive")),
)
