"""Messages of every kind are found by the scan, and their fields are read."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.diagnose.logs.catalogue import BY_NAME, CLASSES, PATTERNS
from harness.diagnose.logs.code_lines import exception, retry, step
from harness.diagnose.logs.comm_lines import mismatch
from harness.diagnose.logs.event import Event
from harness.diagnose.logs.launch_lines import cancelled, task_end
from harness.diagnose.logs.machine_lines import cuda_error, xid
from harness.diagnose.logs.nccl_lines import UNKNOWN_NUMEL, progress, work_timeout
from harness.diagnose.logs.reader import LogReader
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.scan import Scanner

TAG = "[PG ID 0 PG GUID 0(default_pg) Rank 3] "
WORK = "WorkNCCL(SeqNum=1371, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000)"


def said(folder: Path, text: str) -> list[Event]:
    """The events of one file."""
    path = folder / "job.log"
    path.write_text(text + "\n")
    file = TextFile("job.log", path, "text")
    reader, lines = LogReader(file), Scanner(PATTERNS).lines(file)
    for line in lines:
        reader.feed(line)
        lines.follow = reader.follow
    return reader.finish().events


def one(folder: Path, text: str, what: str) -> Event:
    """The only event of a class."""
    found = [event for event in said(folder, text) if event.what == what]
    assert len(found) == 1, found
    return found[0]


# What each message is, with what it says in numbers and in words (LOG-FORMATS, by number).
FOUND: list[tuple[str, str, Mapping[str, int], Mapping[str, str]]] = [
    # 1
    (
        f"{TAG}Watchdog caught collective operation timeout: {WORK} ran for 600049 "
        "milliseconds before timing out.",
        "watchdog_timeout",
        {"seq": 1371, "in": 4096, "out": 4096, "limit_ms": 600000, "ran_ms": 600049},
        {"op": "ALLREDUCE"},
    ),
    (
        "[Rank 3] Caught collective operation timeout: WorkNCCL(OpType=BROADCAST, TensorShape=[8, 16], "
        "Timeout(ms)=1800000) ran for 1800342 milliseconds before timing out.",
        "watchdog_timeout",
        {"limit_ms": 1800000, "ran_ms": 1800342},
        {"op": "BROADCAST", "shape": "8,16"},
    ),
    # 3
    (f"{TAG}First PG on this rank to signal dumping.", "dump_first", {}, {}),
    (
        f"{TAG}First PG on this rank that detected no heartbeat of its watchdog on this rank "
        "to signal dumping",
        "dump_first",
        {},
        {"why": "no heartbeat"},
    ),
    (
        f"{TAG}Received a dump signal due to a collective timeout from this local rank and we "
        "will try our best to dump",
        "dump_first",
        {},
        {},
    ),
    (
        f"{TAG}Observed flight recorder dump signal from another rank via TCPStore.",
        "dump_observed",
        {},
        {},
    ),
    # 4
    (
        f"{TAG}Heartbeat monitor timed out! Process will be terminated after dumping debug "
        "info. workMetaList_.size()=2",
        "heartbeat",
        {},
        {},
    ),
    (
        f"{TAG}ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress "
        "in monitoring enqueued "
        "collectives.",
        "heartbeat",
        {"stuck_s": 480},
        {},
    ),
    ("Could not acquire GIL within 300 ms on exit, possible GIL induced hang", "gil", {}, {}),
    # 5
    (
        f"{TAG}Process group watchdog thread terminated with exception: CUDA error: "
        "unspecified launch failure",
        "watchdog_ended",
        {},
        {"exception": "CUDA error: unspecified launch failure"},
    ),
    (
        f"{TAG}ProcessGroupNCCL dumping nccl trace to /traces/rank_3",
        "dumping",
        {},
        {"path": "/traces/rank_3"},
    ),
    ("ProcessGroupNCCL: Flight Recorder trace successfully dumped.", "dumping", {}, {}),
    (
        "Finished flight recorder successfully. Output can be analyzed using the fr_trace script.",
        "dumping",
        {},
        {},
    ),
    (
        f"{TAG}last enqueued work: 7, last completed work: 6, active collectives: 0",
        "active",
        {"active": 0},
        {},
    ),
    # 6
    (
        f"{TAG}Some NCCL operations have failed or timed out. Due to the asynchronous nature",
        "taking_down",
        {},
        {},
    ),
    (f"{TAG}To avoid data inconsistency, we are taking the entire process down.", "taking_down", {}, {}),
    # 7
    (
        f"{TAG}Collective {WORK} raised the following async exception: NCCL error: remote process exited",
        "nccl_error",
        {},
        {},
    ),
    (
        "ncclRemoteError: A call failed possibly due to a network error.",
        "nccl_error",
        {},
        {"error": "ncclRemoteError"},
    ),
    (
        "ncclSystemError: System call (e.g. socket, malloc) failed",
        "nccl_error",
        {},
        {"error": "ncclSystemError"},
    ),
    ("ncclInternalError: Internal check failed.", "nccl_error", {}, {"error": "ncclInternalError"}),
    # 8
    ("Timeout at collective: ALLREDUCE, #1371", "desync_at", {"seq": 1371}, {"op": "ALLREDUCE"}),
    # 9
    (
        "node-0:42:99 [5] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by "
        "remote peer node-1<41234>",
        "peer_closed",
        {},
        {"peer": "node-1"},
    ),
    (
        "node-0:42:99 [5] transport/net_ib.cc:93 NCCL WARN NET/IB : Got completion from peer "
        "10.0.0.2<4242> with "
        "status=12 opcode=0 len=0 vendor err 129",
        "peer_closed",
        {},
        {},
    ),
    (
        "node-0:42:99 [5] NCCL INFO comm 0x7f rank 13 nranks 16 cudaDev 5 nvmlDev 5 busId "
        "9d000 commId 0x9a - Init START",
        "communicator",
        {"rank": 13, "nranks": 16, "device": 5},
        {"bus": "9d000"},
    ),
    # 11
    (
        "[enforce fail at pair.cc:537] op.preamble.length <= op.nbytes. 8192 vs 4096",
        "gloo_abort",
        {"got": 8192, "wanted": 4096},
        {},
    ),
    (
        "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms "
        "for recv operation to complete",
        "gloo_wait",
        {"limit_ms": 1800000},
        {},
    ),
    (
        "[../third_party/gloo/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4242",
        "peer_closed",
        {},
        {},
    ),
    (
        "[../third_party/gloo/tcp/pair.cc:525] Read error: Connection reset by peer [10.0.0.2]:42",
        "peer_closed",
        {},
        {},
    ),
    (
        "RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors "
        "while waiting for send/recv "
        "from rank 2.",
        "barrier_lost",
        {},
        {},
    ),
    # 12
    (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: "
        "store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)",
        "init_timeout",
        {"rank": 2, "world": 8, "workers": 16},
        {},
    ),
    ('Failed to check the "should dump" flag on TCPStore', "store_lost", {}, {}),
    ("[c10d] sendBytes failed on SocketImpl(fd=59, addr=[node-1]:4242): Broken pipe", "store_lost", {}, {}),
    (
        "torch.distributed.DistNetworkError: Connection was likely closed. Did the remote "
        "server shutdown or crash?",
        "store_lost",
        {},
        {},
    ),
    # 13
    (
        "E0808 03:12:44.123 12 torch/distributed/elastic/multiprocessing/api.py:882] failed "
        "(exitcode: -9) local_rank: 0 "
        "(pid: 123) of binary: /usr/bin/python3",
        "exit",
        {"code": -9, "local_rank": 0, "pid": 123},
        {},
    ),
    (
        "W0808 03:12:44.1 1 api.py:900] Sending process 123 closing signal SIGTERM",
        "closing",
        {"pid": 123},
        {"signal": "SIGTERM"},
    ),
    ("Closing process 123 via signal SIGTERM", "closing", {"pid": 123}, {"signal": "SIGTERM"}),
    (
        "torch.distributed.elastic: Received 15 death signal, shutting down workers",
        "death_signal",
        {},
        {"signal": "15"},
    ),
    ("Received Signals.SIGHUP death signal, shutting down workers", "death_signal", {}, {"signal": "SIGHUP"}),
    # 14
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been",
        "slurm_oom",
        {},
        {},
    ),
    ("slurmstepd: error: Detected 2 oom-kill events in StepId=1.0.", "slurm_oom", {}, {}),
    ("srun: error: node-0: task 3: Killed", "task_end", {}, {"host": "node-0", "how": "Killed"}),
    (
        "srun: error: node-0: tasks 2-3,5: Exited with exit code 1",
        "task_end",
        {"code": 1},
        {"host": "node-0"},
    ),
    ("srun: error: node-0: task 3: Out Of Memory", "task_end", {}, {"how": "Out Of Memory"}),
    (
        " iteration     1370/  100000 | consumed samples:      350720 | elapsed time per "
        "iteration (ms): 4812.3 | "
        "throughput per GPU (TFLOP/s/GPU): 411.2 | lm loss: 2.104120E+00 | grad norm: 0.312 "
        "| number of skipped "
        "iterations:   0 | number of nan iterations:   0 |",
        "step",
        {"step": 1370, "step_ms": 4812},
        {"form": "megatron"},
    ),
    (
        "step: 1370  loss:  2.10412  grad_norm:  0.3121  memory: 61.38GiB(77.42%)  tps: "
        "3,412  tflops: 413.9  mfu: 41.85%",
        "step",
        {"step": 1370},
        {"form": "torchtitan"},
    ),
    (
        "[logging.py:96:log_dist] [Rank 0] step=1370, skipped=0, lr=[0.0003], mom=[(0.9, 0.95)]",
        "step",
        {"step": 1370},
        {"form": "deepspeed"},
    ),
    (
        "Epoch 0: : 1%| | 1370/100000 [1:02:03<3:04:05, v_num=0, reduced_train_loss=2.10, "
        "global_step=1370.0, "
        "train_step_timing in s=4.812]",
        "step",
        {"step": 1370, "step_ms": 4812},
        {"form": "lightning"},
    ),
    # 15
    (
        "[12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU "
        "has fallen off the bus.",
        "xid",
        {"xid": 79},
        {"bus": "0000:3b:00"},
    ),
    (
        "[Sat Aug  8 03:12:44 2026] NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python, Ch 00000008",
        "xid",
        {"xid": 31, "pid": 4242},
        {},
    ),
    (
        "Aug  8 03:12:44 node-0 kernel: NVRM: Xid (PCI:0000:9d:00): 48, pid=1, DBE (double bit error)",
        "xid",
        {"xid": 48},
        {"bus": "0000:9d:00"},
    ),
    (
        "Aug  8 03:12:44 node-0 kernel: Out of memory: Killed process 123 (python) total-vm:1kB",
        "kernel_oom",
        {"pid": 123},
        {"process": "python"},
    ),
    (
        "[12345.678] Memory cgroup out of memory: Killed process 123 (python) total-vm:1kB",
        "kernel_oom",
        {"pid": 123},
        {"process": "python"},
    ),
    (
        "[12345.678] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task=python,pid=123,uid=0",
        "kernel_oom",
        {"pid": 123},
        {"constraint": "CONSTRAINT_MEMCG"},
    ),
    # 16
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a "
        "total capacity of 79.11 GiB",
        "device_oom",
        {},
        {"asked": "2.50 GiB"},
    ),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "device_assert", {}, {}),
    ("RuntimeError: CUDA error: device-side assert triggered", "device_assert", {}, {}),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "ecc", {}, {}),
    ("RuntimeError: CUDA error: unspecified launch failure", "cuda_launch", {}, {}),
    (
        "RuntimeError: DataLoader worker (pid 4243) is killed by signal: Killed. ",
        "loader_death",
        {"worker_pid": 4243},
        {"how": "oom_killed"},
    ),
    (
        "RuntimeError: DataLoader worker (pid 4243) is killed by signal: Bus error. It is "
        "possible that dataloader's "
        "workers are out of shared memory.",
        "loader_death",
        {"worker_pid": 4243},
        {"how": "shared_memory"},
    ),
    ("OSError: [Errno 28] No space left on device", "storage", {}, {"how": "no space left on device"}),
    ("[rank: 0] Received SIGTERM: 15", "sigterm", {}, {}),
    # 17
    ("GET https://store.example/a: Connection broken, retrying 1/5", "retry", {"try": 1, "of": 5}, {}),
    ("GET https://store.example/a: context deadline exceeded", "connection", {}, {}),
    ("urllib3: Connection refused", "connection", {}, {}),
    (
        "aistore.pytorch.AISBatchLoaderError: got 12 of 64 objects",
        "ais_loader",
        {"got": 12, "wanted": 64},
        {},
    ),
    # 18
    ("Collective sequence number: 39 has errors", "pasted", {}, {}),
    ("Culprit rank 5; Error type: COLLECTIVE_TYPE_MISMATCH", "pasted", {}, {}),
    ("Not all ranks joining collective, sequence number: 39", "pasted", {}, {}),
    ("missing ranks: {5}", "pasted", {}, {}),
    # 20, 21
    ("12 ranks have launched up to operation 4711", "ras", {}, {}),
    (
        "submitit INFO - Caught signal SIGUSR2 on node-0: this job is preempted.",
        "preempted",
        {},
        {"reason": "PREEMPTION"},
    ),
    (
        "[2026-01-01T00:00:00] error: *** STEP 1.0 ON node-0 CANCELLED AT "
        "2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "cancelled",
        {},
        {"reason": "TIME LIMIT"},
    ),
    ("`Trainer.fit` stopped: `max_steps=1000` reached.", "completed", {}, {}),
    ("Saving the checkpoint (or staging if async is enabled).", "checkpoint_begin", {}, {}),
    ("successfully saved checkpoint from iteration 1000 to /ckpt", "checkpoint_end", {}, {}),
    ("Running validation at step 1000", "evaluation_begin", {}, {}),
    ("Tokenizing the data set on rank 0", "preprocessing_begin", {}, {}),
    (
        "[2026-08-08 03:12:44,1] [INFO] [launch.py:351:main] Process 123 exits successfully.",
        "exit_ok",
        {"pid": 123},
        {},
    ),
]


@pytest.mark.parametrize(
    ("text", "what", "numbers", "words"), FOUND, ids=[f[1] + "-" + f[0][:24] for f in FOUND]
)
def test_each_message_is_found_and_read(
    text: str, what: str, numbers: Mapping[str, int], words: Mapping[str, str], tmp_path: Path
) -> None:
    """The scan finds the line, and its class reads its fields."""
    event = next((event for event in said(tmp_path, text) if event.what == what), None)

    assert event is not None
    assert numbers.items() <= event.numbers.items()
    assert words.items() <= event.words.items()


@pytest.mark.parametrize(
    ("fields", "numbers", "op"),
    [
        (
            "SeqNum=9, OpType=ALLREDUCE, TensorShape=[4], Timeout(ms)=1000",
            {"seq": 9, "limit_ms": 1000},
            "ALLREDUCE",
        ),
        (
            "OpType=COALESCED, NumelIn=1, NumelOut=2, Timeout(ms)=1000",
            {"in": 1, "out": 2, "limit_ms": 1000},
            "COALESCED",
        ),
        ("SeqNum=9, OpType=SEND", {"seq": 9}, "SEND"),
        ("SeqNum=9, OpType=RECV, NumelIn=5", {"seq": 9, "in": 5}, "RECV"),
        ("SeqNum=9", {"seq": 9}, None),
        ("", {}, None),
    ],
)
def test_any_subset_of_a_works_fields_is_read(fields: str, numbers: dict[str, int], op: str | None) -> None:
    """Versions of torch leave fields out; their order stays."""
    message = (
        f"Watchdog caught collective operation timeout: WorkNCCL({fields}) ran for 1 "
        "milliseconds before timing out."
    )

    parsed = work_timeout(message)

    assert parsed is not None
    assert parsed.numbers == {**numbers, "ran_ms": 1}
    assert parsed.words.get("op") == op


def test_the_greatest_number_of_elements_is_unknown() -> None:
    """2^64-1 is what torch writes where it does not know."""
    message = (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, "
        f"NumelIn={UNKNOWN_NUMEL}, NumelOut=4)"
    )

    parsed = work_timeout(message)

    assert parsed is not None
    assert parsed.numbers == {"seq": 3, "out": 4}


@pytest.mark.parametrize(
    ("tail", "lost"),
    [
        ("SeqNum=137", "seq"),
        ("SeqNum=1371, OpType=ALLRED", "op"),
        ("SeqNum=1371, OpType=ALLREDUCE, NumelIn=40", "in"),
    ],
)
def test_a_field_at_a_torn_end_is_not_believed(tail: str, lost: str) -> None:
    """137 may have been 1371: half a number accuses the wrong one."""
    parsed = work_timeout(f"Watchdog caught collective operation timeout: WorkNCCL({tail}")

    assert parsed is not None
    assert lost not in parsed.numbers
    assert lost not in parsed.words


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (
            "Timeout at NCCL work: 9, last enqueued NCCL work: 12, last completed NCCL work: 8.",
            {"work": 9, "enqueued": 12, "completed": 8},
        ),
        (
            "Exception (either an error or timeout) detected by watchdog at work: 9, last "
            "enqueued NCCL work: 12, "
            "last completed NCCL work: 8.",
            {"work": 9, "enqueued": 12, "completed": 8},
        ),
        (
            "failure detected by watchdog at work sequence id: 9 PG status: last enqueued work: 12, "
            "last completed work: 8",
            {"work": 9, "enqueued": 12},
        ),
        pytest.param(
            "Last enqueued NCCL work: 12, last completed NCCL work: 8.",
            {"enqueued": 12, "completed": 8},
        ),
        pytest.param(
            "Last enqueued NCCL work: 12, last completed NCCL work: 8.[rank3]:",
            {"enqueued": 12, "completed": 8},
        ),
        (
            "Timeout at NCCL work: 1, last enqueued NCCL work: 1, last completed NCCL work: -1.",
            {"work": 1, "enqueued": 1, "completed": -1},
        ),
    ],
)
def test_four_wordings_of_progress(message: str, numbers: dict[str, int]) -> None:
    """At, enqueued, completed; -1 is none yet, and a number at the very end may be cut."""
    parsed = progress(message)

    assert parsed is not None
    assert parsed.numbers == numbers


def test_more_completed_than_enqueued_is_garbage() -> None:
    """Neither number is believed then."""
    parsed = progress("Timeout at NCCL work: 9, last enqueued NCCL work: 12, last completed NCCL work: 13.")

    assert parsed is not None
    assert parsed.numbers == {"work": 9}


def test_who_is_named_in_a_dump_signal_does_not_speak(tmp_path: Path) -> None:
    """It is only the first who reported."""
    text = "[rank5]: Received a dump signal due to a collective timeout from  rank 3 and we will try our best"

    event = one(tmp_path, text, "dump_observed")

    assert (event.rank, event.named) == (5, (3,))


@pytest.mark.parametrize(
    ("text", "what", "named"),
    [
        (
            "[0,1,2] finished collective #9, but didn't join collective #10 (count from 1)",
            "desync_absent",
            (0, 1, 2),
        ),
        ("[3, 4] joined but didn't finish collective #10 (count from 1)", "desync_joined", (3, 4)),
        ("RuntimeError: Rank 2 failed to pass monitoredBarrier in 1000 ms", "barrier_missed", (2,)),
        (
            "RuntimeError: [Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms",
            "barrier_missed",
            (1, 2),
        ),
        ("srun: error: node-0: tasks 2-4,7: Killed", "task_end", (2, 3, 4, 7)),
        (
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
            "CollectiveFingerPrint(SequenceNumber=9, OpType=ALLREDUCE, TensorShape=[4], "
            "TensorDtypes=Float), but Rank 0 "
            "is running collective: CollectiveFingerPrint(SequenceNumber=9, OpType=BROADCAST).",
            "detail",
            (1, 0),
        ),
    ],
)
def test_ranks_that_a_line_names_stand_apart_from_who_speaks(
    text: str, what: str, named: tuple[int, ...], tmp_path: Path
) -> None:
    """Reports of one about others."""
    event = next(event for event in said(tmp_path, text) if event.what == what)

    assert event.named == named
    assert event.rank not in named


@pytest.mark.parametrize(
    "fingerprint",
    [
        "CollectiveFingerPrint(SequenceNumber=9, OpType=ALLREDUCE, TensorShape=[4])",
        "CollectiveFingerPrint(SequenceNumber=9OpType=ALLREDUCE, TensorShape=[4])",
        "CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[4])",
    ],
)
def test_the_debug_wrapper_of_old_versions(fingerprint: str) -> None:
    """No number, or no comma after it."""
    parsed = mismatch(
        "Detected mismatch between collectives on ranks. "
        f"Rank 1 is running collective: {fingerprint}, but Rank 0 is running collective: {fingerprint}."
    )

    assert parsed is not None
    assert parsed.named == (1, 0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-01-01T00:00:00 DUE TO "
            "TIME LIMIT ***",
            "TIME LIMIT",
        ),
        (
            "slurmstepd: error: *** JOB 1 ON node-0 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
            "PREEMPTION",
        ),
        (
            "slurmstepd: error: *** STEP 1.0 ON node-[0-3] CANCELLED AT 2026-01-01T00:00:00 DUE "
            "TO JOB REQUEUE ***",
            "JOB REQUEUE",
        ),
        (
            "slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-01-01T00:00:00 DUE TO "
            "NODE FAILURE ***",
            "NODE FAILURE",
        ),
        ("slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-01-01T00:00:00 ***", None),
        ("slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-01", None),
        ("slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED", None),
    ],
)
def test_a_cancel_with_and_without_its_reason(line: str, reason: str | None) -> None:
    """Of a job or a step; the reason may be absent, the line torn."""
    parsed = cancelled(line)

    assert parsed is not None
    assert parsed.words.get("reason") == reason


def test_a_cancel_that_somebody_talks_of_is_none() -> None:
    """Without a scheduler's error the word alone says nothing."""
    assert cancelled("future was CANCELLED by its owner") is None


def test_a_node_that_fails_a_job_is_not_the_node_that_says_so(tmp_path: Path) -> None:
    """The one that writes of NODE FAILURE is alive."""
    line = (
        "slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***"
    )

    assert [event.what for event in said(tmp_path, line)] == ["cancelled"]


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("srun: error: Node failure on node-3", "node-3"),
        (
            "The node with node id: abc123 and address: 10.0.0.7 and node name: 10.0.0.7 has "
            "been marked dead",
            "10.0.0.7",
        ),
    ],
)
def test_a_lost_node_is_named(line: str, host: str, tmp_path: Path) -> None:
    """SLURM's and Ray's words."""
    assert one(tmp_path, line, "node_lost").words["host"] == host


def test_a_task_with_an_exit_code() -> None:
    """The code counts, the word does not become a signal."""
    parsed = task_end("srun: error: node-0: task 0: Exited with exit code 143")

    assert parsed is not None
    assert (parsed.numbers, parsed.named) == ({"code": 143}, (0,))


@pytest.mark.parametrize("pid", ["pid='<unknown>'", "pid=<unknown>"])
def test_an_xid_of_an_unknown_process(pid: str) -> None:
    """The card is known, the process is not."""
    parsed = xid(f"NVRM: Xid (PCI:0000:3b:00): 79, {pid}, name=<unknown>, GPU has fallen off the bus.")

    assert parsed is not None
    assert parsed.numbers == {"xid": 79}


def test_the_hint_on_assertions_is_no_assertion() -> None:
    """Every CUDA error is followed by it."""
    hint = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."

    assert BY_NAME["device_assert"].parse(hint) is None


@pytest.mark.parametrize(
    ("said_", "kind"),
    [
        ("an illegal memory access was encountered", "device_assert"),
        ("device-side assert triggered", "device_assert"),
        ("misaligned address", "device_assert"),
        ("uncorrectable ECC error encountered", "ecc"),
        ("unspecified launch failure", "cuda_launch"),
        ("out of memory", "device_oom"),
        ("invalid device ordinal", "cuda_other"),
    ],
)
def test_cuda_errors_by_what_they_say(said_: str, kind: str) -> None:
    """Each is its own class; what is not known is not guessed."""
    parsed = cuda_error(f"RuntimeError: CUDA error: {said_}")

    assert parsed is not None
    assert parsed.what == kind


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: bad",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1",
        "KeyboardInterrupt",
        "StopIteration",
        "my_package.errors.Broken: x",
        "subprocess.TimeoutExpired: 5 s",
    ],
)
def test_the_last_line_of_a_traceback(line: str) -> None:
    """A type, and what it says behind the colon."""
    parsed = exception(line)

    assert parsed is not None
    assert parsed.words["type"] == line.partition(":")[0]


@pytest.mark.parametrize(
    "line",
    [
        "UserWarning: deprecated",
        "see ValueError: bad",
        "http://store.example/Error",
        "DeprecationWarning: x",
        "Error rate: 0.1",
        "no errors",
    ],
)
def test_what_is_no_exception(line: str) -> None:
    """Warnings, and words inside of sentences."""
    assert exception(line) is None


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("retrying 1/5", {"try": 1, "of": 5}),
        ("retrying (5/5)", {"try": 5, "of": 5}),
        ("will retry: attempt 2 of 3", {"try": 2, "of": 3}),
        ("Retrying 3 / 4", {"try": 3, "of": 4}),
    ],
)
def test_retries_count(line: str, numbers: dict[str, int]) -> None:
    """Which try it is, of how many."""
    parsed = retry(line)

    assert parsed is not None
    assert parsed.numbers == numbers


def test_a_bar_of_an_epoch_counts_over_epochs() -> None:
    """Batch 12 of 100 in epoch 2 is step 212."""
    parsed = step("Epoch 2:  12%|#2        | 12/100 [00:07<00:51,  1.70it/s, v_num=0]")

    assert parsed is not None
    assert parsed.numbers["step"] == 212


@pytest.mark.parametrize(
    "message",
    [
        "Watchdog caught collective operation timeout: WorkNCCL(" + "(" * 8000,
        "Watchdog caught collective operation timeout: " + "SeqNum=" * 1000,
        "last enqueued work:" + " " * 8000,
        "[" + "1," * 4000 + "] finished collective #9, but didn't join collective #x",
        "store based barrier on rank: 1" + " world_size=1," * 500,
        "*** STEP 1.0 CANCELLED" + " DUE TO" * 1000,
        "error: a: tasks " + "1," * 4000 + ": ",
        "Xid (PCI:0000:3b:00" + ":" * 8000,
        "DataLoader worker (pid" + " 1," * 2000,
        "Epoch 1:" + " 1%| | 1/1" * 700,
        "iteration 1/ 1 |" + " elapsed time per iteration" * 300,
        "Collective CollectiveFingerPrint(" * 200,
        "step=" + "9" * 8000,
        "NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, pid=" + "9" * 50,
        "a." * 4000 + "Error: x",
        "rank 9" + "9" * 5000 + " nranks 9",
        "\udcff" * 500,
    ],
)
def test_no_parser_fails_on_hostile_messages(message: str) -> None:
    """Whatever the scan may hand to a class, it gives fields or nothing."""
    results = [line_class.parse(message) for line_class in CLASSES]

    assert all(value < 10**20 for parsed in results if parsed for value in parsed.numbers.values())


def test_every_class_has_a_name_of_its_own() -> None:
    """A tag says which class it is."""
    assert len(BY_NAME) == len(CLASSES)
