"""What a rank's own stderr says about its end: an exception, lost communication, a gloo abort, or nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_LINE_BYTES = 1 << 16

_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_GLOO_ABORT = re.compile(r"what\(\):.*op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_GAVE_UP = re.compile(r"Timeout \(\d+:\d\d:\d\d")
"""faulthandler.dump_traceback_later: the rank's own watchdog ended it, since it waited too long."""

_RANK_PREFIX = re.compile(r"^\[rank\d+\]:\s?")
"""torch's own excepthook puts the global rank before each line of a traceback."""

_DETAIL = "Detected mismatch between collectives on ranks"
MAX_DETAIL_CHARS = 4000

_COMMUNICATION = re.compile(
    r"gloo/transport|Connection closed by peer \[|Read error \[|Write error \[|"
    r"Timed out waiting \d+ms for (?:send|recv) operation|"
    r"monitoredBarrier|Dist(?:Network|Backend|Store)Error|NCCL error|ProcessGroup(?:Gloo|NCCL)|TCPStore"
)


@dataclass(frozen=True)
class LogEvent:
    """One line worth citing; `line` counts from 1.

    `kind` is exception, communication, detail, gave_up or gloo_abort.

    Of exceptions only the last chain of a log is an event: earlier ones were handled. A chain that
    lost communication anywhere is of that kind, whatever it was wrapped in.
    """

    rank: int
    kind: str
    file: str
    line: int
    text: str


def exception_kind(text: str) -> str:
    """Whether the last line of a traceback speaks of lost communication, or of something else."""
    return "communication" if _COMMUNICATION.search(text) else "exception"


def read_rank_logs(attempt_folder: Path, root: Path) -> tuple[LogEvent, ...]:
    """Events of all ranks in torchrun's layout: ``attempt_<n>/<local_rank>/stderr.log``, one agent."""
    found: list[LogEvent] = []
    for path in sorted(attempt_folder.glob("*/stderr.log")):
        if path.parent.name.isascii() and path.parent.name.isdigit():
            rank = int(path.parent.name)
            found.extend(_events(rank, str(path.relative_to(root)), path))
    return tuple(found)


_CANCELLED = re.compile(r"slurmstepd: error: .*\bCANCELLED\b|Received \d+ death signal|got signal: \d+")


def read_cancellations(path: Path, root: Path) -> tuple[LogEvent, ...]:
    """Lines of the launcher's own log that speak of a stop from outside; a batch system's word first."""
    name = str(path.relative_to(root))
    found = [
        LogEvent(-1, "cancelled", name, number, text.strip()[:300])
        for number, text in _lines(path)
        if _CANCELLED.search(text)
    ]
    return tuple(sorted(found, key=lambda e: "slurmstepd" not in e.text))


def _events(rank: int, name: str, path: Path) -> Iterator[LogEvent]:
    last: LogEvent | None = None
    chained = in_traceback = False
    for number, raw in _lines(path):
        text = _RANK_PREFIX.sub("", raw)
        if text.startswith(_TRACEBACK):
            in_traceback = True
        elif text.startswith(_CHAINED):
            chained = True
        elif _GAVE_UP.match(text):
            yield LogEvent(rank, "gave_up", name, number, text.strip())
        elif _GLOO_ABORT.search(text):
            yield LogEvent(rank, "gloo_abort", name, number, text.strip())
        elif in_traceback and text and not text[0].isspace():
            # The first line that is not indented ends a traceback: it is the exception itself.
            in_traceback = False
            lost = exception_kind(text) == "communication"
            lost = lost or (chained and last is not None and last.kind == "communication")
            kind = "communication" if lost else "exception"
            if _DETAIL in text:
                yield LogEvent(rank, "detail", name, number, text.strip()[:MAX_DETAIL_CHARS])
                kind = "communication"
            last = LogEvent(rank, kind, name, number, text.strip()[:300])
            chained = False
    if last is not None:
        yield last


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                yield number, line.decode("utf-8", errors="replace").rstrip("\r\n")
    except OSError:
        return
