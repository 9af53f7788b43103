"""Finding profiler traces: files and folders, by what is in them rather than by name."""

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

_HEAD_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"
_SUFFIXES = (".json", ".json.gz")
_OBJECT = re.compile(
    rb'^\s*\{.*"(traceEvents|deviceProperties|distributedInfo|baseTimeNanoseconds)"', re.DOTALL
)
_ARRAY = re.compile(rb'^\s*\[\s*\{[^}]*"ph"', re.DOTALL)
_RANK = re.compile(r"rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NUMBER_ONLY = re.compile(r"^(\d{1,6})$")


@dataclass(frozen=True)
class TraceFile:
    """One file that starts like a Chrome trace. `name` is relative to the path that was given."""

    name: str
    path: Path
    size: int


class TraceBytes:
    """A trace's bytes. Of a gzip file that is cut short, `read` first gives all that stands before the cut.

    Then it raises EOFError, as for a broken one zlib.error.
    """

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file
        self.read = file.read1

    def __enter__(self) -> "TraceBytes":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def head(self, size: int) -> bytes:
        """Up to `size` bytes and some more, as many as can be read."""
        found = b""
        with suppress(OSError, EOFError, zlib.error):
            while len(found) < size and (part := self.read(size)):
                found += part
        return found


def open_trace(path: Path) -> TraceBytes:
    """The bytes of a trace, unpacked if they are gzip.

    Raises:
        OSError: it cannot be opened.
    """
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return TraceBytes(gzip.GzipFile(path) if packed else path.open("rb"))


def is_trace(path: Path) -> bool:
    """Whether a file starts like a Chrome trace: `{"traceEvents": [...]}` or a bare array of events."""
    try:
        with open_trace(path) as file:
            head = file.head(_HEAD_BYTES)
    except OSError:
        return False
    return bool(_OBJECT.match(head) or _ARRAY.match(head))


def find_traces(paths: Sequence[Path]) -> tuple[TraceFile, ...]:
    """All traces under `paths`, in a fixed order. A file given by itself may have any name."""
    found = []
    for path in paths:
        root = path.parent if path.is_file() else path
        prefix = f"{path.name}/" if len(paths) > 1 and path.is_dir() else ""
        for file in _candidates(path):
            if is_trace(file):
                found.append(TraceFile(prefix + str(file.relative_to(root)), file, file.stat().st_size))
    return tuple(found)


def rank_from_name(name: str) -> int | None:
    """The rank in a file's name: ``rank3_trace.json``, ``x_rank_3.json.gz``, ``3.json``.

    Other numbers there are pids and times.
    """
    base = Path(name).name
    if found := _RANK.search(base):
        return int(found[1])
    bare = _NUMBER_ONLY.match(base.removesuffix(".gz").removesuffix(".json"))
    return int(bare[1]) if bare else None


def _candidates(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for entry in sorted(path.rglob("*")):
            if entry.name.endswith(_SUFFIXES) and not entry.name.startswith(".") and entry.is_file():
                yield entry
