"""What one sample catches a rank doing: frames recorded from real gloo ranks, and made-up ones."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from harness.diagnose.stacks.activity import activity
from harness.diagnose.stacks.samples import Frame, ProcessStacks, Thread

RECORDED = TypeAdapter(dict[str, ProcessStacks]).validate_json(
    Path(__file__).with_name("recorded.json").read_bytes()
)

TORCH = "/venv/lib/python3.11/site-packages/torch"
MINE = "/job/train.py"
SCRIPT = ("<module>", MINE, "train()")

EXPECTED = {
    "DDP's backward": ("backward", "run_ddp train.py:55"),
    "FSDP gathers parameters": ("communication", "<module> train.py:81"),
    "FSDP reduces gradients": ("communication", "<module> train.py:81"),
    "a collective": ("communication", "<module> train.py:99"),
    "a collective's handle": ("communication", "<module> train.py:87"),
    "a dataset in the main process": ("dataloader", "Rows.__getitem__ train.py:13"),
    "a distributed checkpoint opens its file": ("checkpoint", "run_dcp train.py:42"),
    "a distributed checkpoint syncs its file": ("checkpoint", "run_dcp train.py:42"),
    "a distributed checkpoint waits for other ranks": ("communication", "run_dcp train.py:42"),
    "a distributed checkpoint writes": ("checkpoint", "run_dcp train.py:42"),
    "a lock": ("lock", "<module> train.py:92"),
    "a log file that is flushed": ("logging", "run_log train.py:39"),
    "a log record that is formatted": ("logging", "run_log train.py:39"),
    "an optimizer": ("own", "run_ddp train.py:57"),
    "fsync": ("io", "run_save train.py:45"),
    "item()": ("item_sync", "<listcomp> train.py:89"),
    "loader workers": ("dataloader", "<module> train.py:83"),
    "objects that are gathered": ("communication", "<module> train.py:98"),
    "on the way into a collective": ("communication", "<module> train.py:99"),
    "print() into a full pipe": ("logging", "run_print train.py:31"),
    "print() into a stream of one's own": ("logging", "Tee.write train.py:36"),
    "sleeping code": ("own", "run_ddp train.py:56"),
    "torch.save": ("checkpoint", "run_save train.py:44"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_recorded(name: str) -> None:
    """Real frames: waiting for others is told from each kind of work, with the user's line."""
    caught = activity(RECORDED[name])

    assert caught is not None
    assert (caught.doing, str(caught.frame)) == EXPECTED[name]


def test_the_collective_is_named() -> None:
    """Whatever called it, the wait is in torch's collective."""
    names = ("a collective", "FSDP reduces gradients", "a distributed checkpoint waits for other ranks")

    calls = [caught.call for name in names if (caught := activity(RECORDED[name]))]

    assert calls == ["all_reduce", "reduce_scatter_single", "all_gather"]


@pytest.mark.parametrize("name", sorted(set(RECORDED) - set(EXPECTED)))
def test_torn(name: str) -> None:
    """A stack that changed while it was read, without the script at its end, says nothing."""
    assert RECORDED[name].main
    assert activity(RECORDED[name]) is None


def process(*threads: list[tuple[str, str, str]], state: str = "sleeping") -> ProcessStacks:
    """A process by its threads' frames (function, file, source), innermost first; the main thread first."""
    read = tuple(
        Thread(
            thread_name="helper" if i else "MainThread",
            frames=tuple(Frame(name=n, filename=f, line=1, source=s or None) for n, f, s in frames),
        )
        for i, frames in enumerate(threads)
    )
    return ProcessStacks(pid=1, state=state, threads=read)


MADE_UP = {
    "torch computes below DDP's forward": (
        "own",
        [
            ("Linear.forward", f"{TORCH}/nn/modules/linear.py", "return F.linear(input)"),
            ("DistributedDataParallel.forward", f"{TORCH}/nn/parallel/distributed.py", ""),
        ],
    ),
    "DDP waits before its forward": (
        "communication",
        [("DistributedDataParallel._sync_buffers", f"{TORCH}/nn/parallel/distributed.py", "")],
    ),
    "a batch norm that synchronises": (
        "communication",
        [
            ("all_gather", f"{TORCH}/distributed/distributed_c10d.py", "work.wait()"),
            ("SyncBatchNorm.forward", f"{TORCH}/nn/modules/batchnorm.py", ""),
        ],
    ),
    "DTensor's dispatch": (
        "own",
        [("OpDispatcher.dispatch", f"{TORCH}/distributed/tensor/_dispatch.py", "")],
    ),
    "a value that is printed may be waited for": ("item_sync", [("log", MINE, "print(loss.item())")]),
    "an event of Python's": (
        "lock",
        [("Event.wait", "/usr/lib/python3.11/threading.py", ""), ("f", MINE, "done.wait()")],
    ),
    "a log handler that sends": (
        "logging",
        [
            ("Shipper.emit", "/job/shipper.py", "self.sock.sendall(line)"),
            ("Handler.handle", "/usr/lib/python3.11/logging/__init__.py", ""),
            ("f", MINE, "log.info(x)"),
        ],
    ),
    "a progress bar": (
        "logging",
        [("tqdm.refresh", "/venv/lib/python3.11/site-packages/tqdm/std.py", ""), ("f", MINE, "")],
    ),
    "what a progress bar goes through": (
        "own",
        [
            ("tqdm.__iter__", "/venv/lib/python3.11/site-packages/tqdm/std.py", "for obj in iterable:"),
            ("f", MINE, ""),
        ],
    ),
    "joining": ("joining", [("init_process_group", f"{TORCH}/distributed/distributed_c10d.py", "")]),
}


@pytest.mark.parametrize("name", MADE_UP)
def test_made_up(name: str) -> None:
    """The innermost telling frame decides; what a library calls back belongs to the library."""
    doing, frames = MADE_UP[name]

    caught = activity(process([*frames, SCRIPT]))

    assert caught is not None
    assert caught.doing == doing


def test_a_thread_that_waits_for_a_thread() -> None:
    """A main thread behind a lock is at work, unless another thread of it waits for other ranks."""
    main = [("Event.wait", "/usr/lib/python3.11/threading.py", ""), SCRIPT]
    collective = [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", "work.wait()")]
    alone, helped = activity(process(main)), activity(process(main, collective))

    assert alone is not None and alone.doing == "lock"
    assert helped is not None and helped.doing == "communication"


def test_a_stopped_process() -> None:
    """SIGSTOP holds a process wherever it is."""
    caught = activity(process([SCRIPT], state="stopped"))

    assert caught is not None and caught.doing == "stopped"
