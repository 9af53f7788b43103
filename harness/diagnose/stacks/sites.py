"""What a process is doing, from its frames. Unknown code is named, never guessed at."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.diagnose.frames import is_own_code
from harness.diagnose.stacks.samples import Frame, ProcessStacks

_JOINING = frozenset(["init_process_group", "_new_process_group_helper", "rendezvous", "new_group"])
_LEAVING = frozenset(("destroy_process_group",))
_BACKWARD = "_engine_run_backward"
"""Autograd's C++ engine: it computes, or DDP's reducer waits in it for its all-reduces."""


@dataclass(frozen=True)
class Position:
    """`doing` is communication, backward, joining, leaving or code; `frame` the caller's innermost frame.

    `call` is torch's own function that the caller called, where it did.
    """

    doing: str
    frame: Frame | None
    call: str | None = None


def position(frames: Sequence[Frame]) -> Position:
    """Where a main thread is. `frames` are innermost first."""
    at = next((i for i, f in enumerate(frames) if is_own(f)), len(frames))
    own = frames[at] if at < len(frames) else None
    within = frames[:at]
    names = {f.function for f in within}
    call = next((f.name for f in reversed(within) if not f.name.endswith("wrapper")), None)
    if names & _JOINING:
        return Position("joining", own, call)
    if names & _LEAVING:
        return Position("leaving", own, call)
    if any(_communicates(f) for f in within) and not _site_in(within):
        return Position("communication", own, call)
    if _BACKWARD in names:
        return Position("backward", own, call)
    return Position("code", own, call)


def _communicates(frame: Frame) -> bool:
    file = frame.filename.replace("\\", "/")
    return "torch/distributed/" in file or "torch/nn/parallel/" in file


STOPPED = frozenset(("stopped", "tracing-stop"))
"""SIGSTOP, or a debugger that holds the process."""

NOT_RUNNING = STOPPED | {"disk-sleep"}
"""States of a live process that will not arrive by itself; "disk-sleep" is uninterruptible, in the kernel.

A zombie has ended: of that the launcher knows more.
"""


def stall_site(process: ProcessStacks) -> str:
    """In what a stalled process sits: one of DIAGNOSIS's words for `rank_stalled`."""
    if process.state in STOPPED:
        return "stopped"
    if process.main_keeps_gil and process.state == "sleeping":
        return "gil"
    if process.state == "disk-sleep":
        return "io"
    return _site_in(process.main) or "user_code"


def _site_in(frames: Sequence[Frame]) -> str | None:
    """The site that the innermost telling frame shows, within what the caller's own function called."""
    for frame in frames:
        if site := site_of(frame):
            return site
        if is_own(frame) and not _is_handler(frame):
            return site_of_source(frame.source)
    return None


def site_of(frame: Frame) -> str | None:
    """The site that one frame of a library shows, None for most."""
    return next((site for site, shows in _SITES if shows(frame)), None)


def is_own(frame: Frame) -> bool:
    """Whether a frame is of the user's code: neither torch, nor Python's library, nor a hook of theirs."""
    file = frame.filename.replace("\\", "/")
    return is_own_code(file) and frame.function not in _HOOKS and not _STANDARD_LIBRARY.search(file)


_HOOKS = frozenset(("__torch_dispatch__", "__torch_function__"))
_STANDARD_LIBRARY = re.compile(r"/python3[^/]*/(?!(?:site|dist)-packages/)|^<frozen ")


def _in_file(*ends: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.filename.replace("\\", "/").endswith(ends)


def _named(*names: str, file: str = "") -> Callable[[Frame], bool]:
    return lambda frame: frame.function in names and file in frame.filename.replace("\\", "/")


_SITES: tuple[tuple[str, Callable[[Frame], bool]], ...] = (
    ("dataloader", _in_file("torch/utils/data/dataloader.py", "torch/utils/data/_utils/worker.py")),
    ("logging", _in_file("logging/__init__.py", "logging/handlers.py")),
    ("checkpoint", lambda f: "torch/distributed/checkpoint/" in f.filename.replace("\\", "/")),
    ("checkpoint", _in_file("torch/serialization.py")),
    ("item_sync", _named("item", "tolist", "cpu", "numpy", "synchronize", file="torch/")),
    ("lock", _in_file("/threading.py", "/queue.py", "multiprocessing/synchronize.py")),
    ("io", _in_file("/socket.py", "/ssl.py", "http/client.py", "/subprocess.py")),
)
"""Files and functions in which a thread waits, innermost first."""

_SOURCES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("item_sync", re.compile(r"\.(item|tolist|cpu|numpy)\(\)|\bsynchronize\(")),
    ("lock", re.compile(r"^\s*with\s+[\w.]*(lock|mutex|cond|sem)\w*\s*:|\.(acquire|wait)\(", re.IGNORECASE)),
    ("io", re.compile(r"\bos\.(read|write|fsync|open)\(|\.(read|readline|recv|fsync|flush)\(")),
)
"""Calls of native functions leave no frame of their own: the line itself says what was called."""


def site_of_source(source: str | None) -> str | None:
    """The site that the text of a line shows: a native call leaves no frame."""
    if not source:
        return None
    return next((site for site, pattern in _SOURCES if pattern.search(source)), None)


def _is_handler(frame: Frame) -> bool:
    """A log handler is the user's own class; the logging module that called it tells more."""
    return frame.function in ("emit", "flush", "format")
