"""What one sample catches a rank doing, of a job that runs: waiting for others, or which work on the host."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.diagnose.stacks.samples import Frame, ProcessStacks
from harness.diagnose.stacks.sites import STOPPED, is_own, position, site_of, site_of_source

COMMUNICATION = "communication"
"""Waiting for others, in a collective or in its handle."""

UNDECIDED = frozenset(("backward", "joining", "leaving"))
"""Autograd's engine computes, or DDP's reducer waits in it for its all-reduces: the frames are the same."""

ITEM_SYNC = "item_sync"
"""On a GPU the wait for a value may be one for a collective's kernel; on a CPU it is work."""


@dataclass(frozen=True)
class Activity:
    """`doing` is communication, one of UNDECIDED, or work: own, dataloader, logging, checkpoint, item_sync,
    lock, io, stopped.

    `frame` is the innermost frame of the user's code, `call` torch's function that it called, if any; in
    communication it is the collective itself.
    """

    doing: str
    frame: Frame | None
    call: str | None = None


def activity(process: ProcessStacks) -> Activity | None:
    """What a rank's main thread does; None where it could not be read whole.

    py-spy does not stop the process, so a stack that changes meanwhile may be torn: every whole stack of a
    main thread holds its script (measured: 3 % are torn while Python code runs, none while it waits).
    """
    main = process.main
    if process.state in STOPPED:
        return Activity("stopped", position(main).frame)
    if not any(frame.name == "<module>" for frame in main):
        return None
    here = position(main)
    if here.doing in ("joining", "leaving"):
        return Activity(here.doing, here.frame, here.call)
    doing = _doing(main)
    if doing == "lock" and _another_thread_communicates(process):
        doing = COMMUNICATION
    collective = next((f.function for f in main if _is_collective(f)), None)
    return Activity(doing, here.frame, (doing == COMMUNICATION and collective) or here.call)


def _doing(frames: Sequence[Frame]) -> str:
    inner = _innermost(frames)
    if inner in (COMMUNICATION, "backward"):
        return inner
    # A dataset, a log handler, a writer of checkpoints: the library that called them back tells more.
    around = {site_of(frame) for frame in frames}
    return next((site for site in _CALLING_BACK if site in around), inner)


def _innermost(frames: Sequence[Frame]) -> str:
    """What the innermost telling frame shows, out to the innermost one of the user's."""
    for frame in frames:
        if not is_own(frame):
            if word := _of_library(frame):
                return word
        elif frame.function not in _PASSING_ON:
            return _of_own(frame)
    return "own"


def _of_library(frame: Frame) -> str | None:
    file = frame.filename.replace("\\", "/")
    if site := site_of(frame):
        return site
    if frame.function == "_engine_run_backward":
        return "backward"
    if _COMMUNICATING.search(file):
        return COMMUNICATION
    if file.endswith("torch/nn/parallel/distributed.py") and frame.function not in _FORWARD:
        return COMMUNICATION
    return "own" if _COMPUTING.search(file) else None


def _of_own(frame: Frame) -> str:
    if _PRINTING.search(frame.filename.replace("\\", "/")) and frame.function != "__iter__":
        return "logging"
    site = site_of_source(frame.source)
    if site == ITEM_SYNC or not frame.source:
        return site or "own"
    if _HANDLE.search(frame.source):
        return COMMUNICATION
    return "logging" if _OUTPUT.search(frame.source) else site or "own"


def _is_collective(frame: Frame) -> bool:
    return frame.filename.endswith("distributed_c10d.py") and not frame.function.endswith("wrapper")


def _another_thread_communicates(process: ProcessStacks) -> bool:
    """Whether the main thread may wait for a thread that itself waits for other ranks."""
    others = (t.frames for t in process.threads or () if t.frames and t.frames != process.main)
    return any(_innermost(frames) == COMMUNICATION for frames in others)


_CALLING_BACK = ("dataloader", "checkpoint", "logging")
_PASSING_ON = frozenset(("emit", "flush", "format", "write"))
"""Handlers and wrapped streams are the user's own; who called them tells more."""

_FORWARD = frozenset(("forward", "_run_ddp_forward"))
"""DDP calls the model from these: native code below them computes."""

_COMMUNICATING = re.compile(
    r"torch/distributed/(?!checkpoint/|algorithms/_checkpoint/|tensor/(?!_collective))"
)
"""DTensor's dispatch computes, and so does what activation checkpointing wraps."""

_COMPUTING = re.compile(r"torch/(nn/modules/(?!module\.py)|nn/functional\.py|optim/|_inductor/)")
_PRINTING = re.compile(r"-packages/(tqdm|loguru|rich|structlog)/")
_HANDLE = re.compile(r"\.wait\(")
"""Native, so without a frame below it: a collective's handle. Python's own waits have frames."""

_OUTPUT = re.compile(r"\bprint\(|\bstd(out|err)\b.*\.(write|flush)\(|\bos\.write\([12]\b")
