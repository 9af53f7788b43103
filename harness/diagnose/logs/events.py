"""What a rank's own stderr says about its end: an exception, a gloo abort, or nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_LINE_BYTES = 1 << 16
TAIL_BYTES = 1 << 20

_EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Iteration))"
    r"(?::\s*(?P<text>.*))?$"
)
_RANK_PREFIX = re.compile(r"^\[rank\d+\]:\s?")
"""torch's own excepthook puts the global rank before each line of a traceback."""

_GLOO_ABORT = re.compile(r"what\(\):.*op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_COMMUNICATION = re.compile(
    r"gloo/transport|Connection closed by peer|Connection reset by peer|Read error \[|"
    r"Timed out waiting \d+ms for (?:send|recv) operation|Broken pipe|"
    r"DistNetworkError|DistBackendError|DistStoreError|NCCL error"
)


@dataclass(frozen=True)
class LogEvent:
    """One line worth citing. `kind` is exception, communication or gloo_abort; `line` counts from 1."""

    rank: int
    kind: str
    file: str
    line: int
    text: str


def read_rank_logs(attempt_folder: Path, root: Path) -> tuple[LogEvent, ...]:
    """Events of all ranks in torchrun's layout: ``attempt_<n>/<local_rank>/stderr.log``, one agent."""
    found: list[LogEvent] = []
    for path in sorted(attempt_folder.glob("*/stderr.log")):
        if path.parent.name.isdigit():
            rank = int(path.parent.name)
            name = str(path.relative_to(root))
            found.extend(_events(rank, name, path))
    return tuple(found)


def _events(rank: int, name: str, path: Path) -> Iterator[LogEvent]:
    in_traceback = False
    for number, raw in _lines(path):
        text = _RANK_PREFIX.sub("", raw)
        if text.startswith("Traceback (most recent call last)"):
            in_traceback = True
        elif _GLOO_ABORT.search(text):
            yield LogEvent(rank, "gloo_abort", name, number, text.strip())
        elif in_traceback and (match := _EXCEPTION.match(text)):
            in_traceback = False
            communication = _COMMUNICATION.search(text)
            kind = "communication" if communication else "exception"
            yield LogEvent(rank, kind, name, number, match.group(0)[:300])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                yield number, line.decode("utf-8", errors="replace").rstrip("\n")
    except OSError:
        return
