"""Errors in the shapes that libraries give them: boxes, groups, C++ ends, texts that mean something else."""

from tests.diagnose.logs.wild.lines import (
    at,
    block,
    closing,
    failed,
    glog,
    megatron,
    text,
    timeout,
    titan,
    trace,
)
from tests.diagnose.logs.wild.model import Files, Wild


def _ended(rank: int, code: int) -> list[str]:
    others = [500 + r for r in range(4) if r != rank]
    return [
        *closing(100, others),
        *failed(101, code, rank, 500 + rank),
        *block(101, (rank, rank, code, 500 + rank)),
    ]


def _of(rank: int, *rows: str, code: int = 1) -> Files:
    """One log of four ranks in which `rank` says `rows` and ends."""
    said = [f"[rank{rank}]: {row}" for row in rows]
    return {"train.log": text(titan(range(1, 30), 0), said, _ended(rank, code))}


def rich_box() -> Files:
    """A traceback in a box of rich, as many trainers print it."""
    box = [
        "╭───────────────────── Traceback (most recent call last) ─────────────────────╮",
        "│ /workspace/train.py:88 in main                                             │",
        "│ ❱ 88 │   loss = model(batch)                                              │",
        "╰────────────────────────────────────────────────────────────────────────────╯",
    ]
    return _of(
        2,
        *box,
        "ValueError: Target size (torch.Size([8])) must be the same as input size (torch.Size([8, 1]))",
    )


def exception_group() -> Files:
    """An exception group of an asynchronous loader: bars and plus signs in front of each line."""
    rows = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "/workspace/train.py", line 12, in main',
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "/workspace/fetch.py", line 7, in fetch',
        "    | ValueError: shard 17 has no index",
        "    +------------------------------------",
    ]
    return _of(2, *rows)


def bare_assertion() -> Files:
    """`assert x` without a word: the type alone."""
    return _of(2, *trace("AssertionError", file="/workspace/model.py", function="forward"))


def own_exception() -> Files:
    """An exception class of the script itself, whose name says nothing."""
    return _of(2, *trace("__main__.Halt: budget of tokens is used up", file="/workspace/train.py"))


def triton_resources() -> Files:
    """Triton's shared memory is on the card: not the host's /dev/shm, and no lack of memory."""
    return _of(
        2,
        *trace(
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: "
            "147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
            file="/workspace/kernels.py",
        ),
    )


def cublas() -> Files:
    """cuBLAS cannot start: often memory, but the text does not say so."""
    return _of(
        2,
        *trace(
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            file="/workspace/model.py",
        ),
    )


def no_gpus() -> Files:
    return _of(2, *trace("RuntimeError: No CUDA GPUs are available", file="/workspace/train.py"))


def bad_alloc() -> Files:
    """C++ could not allocate, and aborts: SIGABRT, but nobody's watchdog was at work."""
    return _of(
        2,
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "  what():  std::bad_alloc",
        code=-6,
    )


def double_free() -> Files:
    """glibc finds the heap damaged, and aborts."""
    return _of(2, "double free or corruption (!prev)", code=-6)


def exit_call() -> Files:
    """A rank calls sys.exit(3) after a line of its own; the launcher names it."""
    return _of(2, "license of the tokenizer has expired, leaving", code=3)


def file_limit() -> Files:
    return _of(
        2,
        *trace(
            "OSError: [Errno 24] Too many open files: '/data/shard-00017.bin'",
            file="/workspace/dataset.py",
            function="open",
        ),
    )


def hub_limit() -> Files:
    """A model hub turns everybody away at the start."""
    files: Files = {}
    for rank in range(4):
        said = (
            "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: "
            "https://hub.example/api/models/some/model"
        )
        files[f"rank{rank}.log"] = text(trace(said, rank, file="/workspace/load.py"))
    return files


def logged_then_raised() -> Files:
    """One exception, printed by the logger, by Python and by torchrun's record: one failure."""
    rows = trace("KeyError: 'labels'", 2, file="/workspace/collate.py")
    return {
        "train.log": text(
            titan(range(1, 30), 0),
            f"[rank2]: {at(99)} ERROR training failed: 'labels'",
            rows,
            rows,
            closing(100, (500, 501, 503)),
            failed(101, 1, 2, 502),
            block(
                101,
                (2, 2, 1, 502),
                said="Traceback (most recent call last):\n"
                '    File "/workspace/collate.py", line 211, in main\n'
                "      out = step(batch)\n  KeyError: 'labels'\n  ",
            ),
        )
    }


def during_handling() -> Files:
    """`During handling of the above exception`: the first is the cause, the second a failed clean-up."""
    rows = [
        *trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            2,
            file="/workspace/model.py",
        ),
        "[rank2]: ",
        "[rank2]: During handling of the above exception, another exception occurred:",
        "[rank2]: ",
        *trace(
            "RuntimeError: save_on_crash failed: model is on meta device",
            2,
            file="/workspace/train.py",
            function="on_exception",
        ),
    ]
    return {"train.log": text(titan(range(1, 30), 0), rows, _ended(2, 1))}


def finally_communicates() -> Files:
    """Rank 2 fails; in its `finally` a barrier times out, and that is what stands last."""
    rows = [
        *trace("KeyError: 'labels'", 2, file="/workspace/collate.py"),
        "[rank2]: ",
        "[rank2]: During handling of the above exception, another exception occurred:",
        "[rank2]: ",
        *trace(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, "
            "unhandled system error, NCCL version 2.21.5",
            2,
        ),
    ]
    files: Files = {f"rank{r}.log": text(titan(range(1, 30), 0), timeout(r, 700, 412)) for r in (0, 1, 3)}
    files["rank2.log"] = text(titan(range(1, 30), 0), rows)
    return files


def swallowed_then_hang() -> Files:
    """Rank 2 catches its exception, prints it, skips the batch, and with it a collective: the rest wait."""
    files: Files = {f"rank{r}.log": text(titan(range(1, 30), 0), timeout(r, 700, 412)) for r in (0, 1, 3)}
    files["rank2.log"] = text(
        titan(range(1, 30), 0),
        f"[rank2]: {at(99)} WARNING bad batch, skipping it",
        trace("ValueError: empty batch", 2, file="/workspace/dataset.py"),
        timeout(2, 700, 411),
    )
    return files


def words_in_data() -> Files:
    """Generated text is printed: stack traces, kills and NaNs that a language model wrote."""
    sample = [
        "sample 0 prompt: 'why did my job die?'",
        "sample 0 output:",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "ZeroDivisionError: division by zero",
        "srun: error: node17: task 3: Killed",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "slurmstepd: error: *** JOB 1 ON node17 CANCELLED AT 2020-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "end of sample 0",
    ]
    return {
        "train.log": text(
            titan(range(1, 30), 0),
            sample,
            titan(range(30, 60), 100),
            f"[titan] {at(300)} - root - INFO - Training completed",
        )
    }


def gloo_mixed_errors() -> Files:
    """Rank 2 is gone without a word; its peers give different errors, one a plain `Connection reset`."""
    said = (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
        "peer [10.0.0.3]:41234",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error "
        "[10.0.0.3]:41234: Connection reset by peer",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
    )
    files: Files = {"rank2.log": text([f"step {n} loss 2.1" for n in range(20)])}
    for rank, words in zip((0, 1, 3), said, strict=True):
        files[f"rank{rank}.log"] = text([f"step {n} loss 2.1" for n in range(20)], trace(words, rank))
    return files


def manager_is_gone() -> Files:
    """Rank 1's helper process lost its parent's pipe as everything went down after rank 3's error."""
    rows = [
        *titan(range(1, 30), 0),
        *trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
        *closing(100, (500, 501, 502)),
        *trace(
            "EOFError", 1, file="/opt/conda/lib/python3.11/multiprocessing/connection.py", function="_recv"
        ),
        *trace(
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            0,
            file="/opt/conda/lib/python3.11/multiprocessing/connection.py",
            function="_recv",
        ),
    ]
    return {"train.log": text(rows, failed(101, 1, 3, 503), block(101, (3, 3, 1, 503)))}


def manager_is_gone_in_files() -> Files:
    """The same in a file a rank, without times: rank 3's error is the only one that is not about others."""
    files: Files = {f"rank{r}.log": text([f"step {n} loss 2.1" for n in range(20)]) for r in (0, 2)}
    files["rank1.log"] = text(
        [f"step {n} loss 2.1" for n in range(20)],
        trace(
            "EOFError", 1, file="/opt/conda/lib/python3.11/multiprocessing/connection.py", function="_recv"
        ),
    )
    files["rank3.log"] = text(
        [f"step {n} loss 2.1" for n in range(20)],
        trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
    )
    return files


def sigterm_exceptions() -> Files:
    """A preemption notice; in the seconds after it half of the ranks trip over what is torn down."""
    files: Files = {}
    for rank in range(4):
        rows = [*titan(range(1, 30), 0), f"[rank: {rank}] Received SIGTERM: 15"]
        if rank in (1, 2):
            rows += trace(
                "RuntimeError: cannot schedule new futures after shutdown", rank, file="/workspace/dataset.py"
            )
        files[f"rank{rank}.log"] = text(rows)
    files["slurm-88.out"] = text(
        [
            f"slurmstepd: error: *** JOB 88 ON gpu-a1 CANCELLED AT {at(88, '%Y-%m-%dT%H:%M:%S')} "
            "DUE TO PREEMPTION ***"
        ]
    )
    return files


def save_hangs_for_good() -> Files:
    """Rank 0 begins a save and is never heard of again; the others wait at the barrier behind it."""
    files: Files = {}
    for rank in range(4):
        rows = titan(range(1, 30), 0)
        rows += (
            [f"[rank0]: {at(98)} Saving checkpoint at iteration 29 to /mnt/ckpt"]
            if rank == 0
            else timeout(rank, 700, 412, "ALLREDUCE", 1)
        )
        files[f"rank{rank}.log"] = text(rows)
    return files


def stale_nccl_warn() -> Files:
    """NCCL warns of a link at the start and works; hours later rank 1 has a bug."""
    rows = [
        "gpu-a1:8001:8101 [1] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_create_qp failed",
        "gpu-a1:8001:8101 [1] NCCL WARN NET/IB : Got async event : port error",
        *megatron(range(1, 900), 0),
        *trace("KeyError: 'labels'", 1, file="/workspace/collate.py"),
    ]
    return {"node0.log": text(rows)}


def store_warnings_only() -> Files:
    """A store that answers late for a while: warnings, no end, steps go on."""
    warn = [
        f"[rank{r}]:{glog(30 + r, 'W', 'TCPStore.cpp:125')} [c10d] recvValue failed on "
        f"SocketImpl(fd=3, addr=[gpu-a1]:41{r}, remote=[gpu-a1]:29500): Connection reset by peer"
        for r in range(4)
    ]
    return {"train.log": text(titan(range(1, 10), 0), warn, titan(range(10, 90), 40))}


ERROR = ("software_error",)
INCIDENTS = (
    Wild("rich_box", rich_box, ERROR, culprits=(2,)),
    Wild(
        "exception_group",
        exception_group,
        (*ERROR, "data_corrupt", "rank_exited"),
        suspects=(2,),
        may_convict=(2,),
    ),
    Wild("bare_assertion", bare_assertion, ERROR, culprits=(2,)),
    Wild("own_exception", own_exception, ERROR, culprits=(2,)),
    Wild("triton_resources", triton_resources, ERROR, culprits=(2,)),
    Wild("cublas", cublas, (*ERROR, "rank_exited", "device_oom"), culprits=(2,)),
    Wild("no_gpus", no_gpus, (*ERROR, "hardware_fault", "rank_exited"), culprits=(2,)),
    Wild("bad_alloc", bad_alloc, ("rank_exited", "host_oom"), suspects=(2,), may_convict=(2,)),
    Wild("double_free", double_free, ("rank_exited",), suspects=(2,), may_convict=(2,)),
    Wild("exit_call", exit_call, ("rank_exited", *ERROR), suspects=(2,), may_convict=(2,)),
    Wild("file_limit", file_limit, (*ERROR, "storage_failure"), culprits=(2,)),
    Wild("hub_limit", hub_limit, (*ERROR, "storage_failure"), may_convict=()),
    Wild("logged_then_raised", logged_then_raised, ERROR, culprits=(2,)),
    Wild("during_handling", during_handling, ("device_oom",), culprits=(2,)),
    Wild("finally_communicates", finally_communicates, ERROR, culprits=(2,)),
    Wild(
        "swallowed_then_hang",
        swallowed_then_hang,
        ("collective_skipped", *ERROR, "data_corrupt"),
        suspects=(2,),
        may_convict=(2,),
    ),
    Wild("words_in_data", words_in_data, ("healthy", "inconclusive"), calm=True),
    Wild("gloo_mixed_errors", gloo_mixed_errors, ("inconclusive", "rank_exited"), may_convict=(2,)),
    Wild("manager_is_gone", manager_is_gone, ERROR, culprits=(3,)),
    Wild(
        "manager_is_gone_in_files",
        manager_is_gone_in_files,
        (*ERROR, "inconclusive"),
        suspects=(3,),
        may_convict=(3,),
    ),
    Wild("sigterm_exceptions", sigterm_exceptions, ("external_stop",), calm=True),
    Wild(
        "save_hangs_for_good",
        save_hangs_for_good,
        ("checkpoint_slow", "rank_stalled", "inconclusive"),
        suspects=(0,),
        may_convict=(0,),
    ),
    Wild("stale_nccl_warn", stale_nccl_warn, ERROR, culprits=(1,)),
    Wild("store_warnings_only", store_warnings_only, ("healthy", "inconclusive"), calm=True),
)
