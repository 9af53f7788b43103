"""Errors in the shapes that libraries give them: boxes, groups, C++ ends, texts that mean something else."""

from tests.diagnose.logs.wild.lines import at, block, closing, failed, text, timeout, titan, trace
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
)
