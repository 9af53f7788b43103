"""Finding logs: text files and per-rank JSON lines of other people, by any name, plain or gzipped."""

import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.diagnose.signals.formats.unpack import MAGIC, Gunzip

HEAD_BYTES = 64 << 10
BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 64 << 20
MAX_PLAIN_BYTES = 16 << 30
"""What a gzipped log may unpack to; more is no log."""

UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading a damaged file raises; a broken gzip yields what stands before the break first."""

_NOT_RECORDS = frozenset((".md", ".py", ".html", ".yaml", ".yml", ".toml", ".rst"))
"""Documents and sources quote records; they are none."""

_MARKUP = re.compile(rb"<(?:!doctype|html|svg|\?xml)", re.IGNORECASE)
_NAMED_RANK = re.compile(
    r"(?<![A-Za-z])(?<!node_)(?<!node-)(?<!local_)(?<!local-)(?:global[_-]?)?rank[_.-]?(\d{1,7})"
)
_ATTEMPT = re.compile(r"attempt_(\d{1,6})")
_OURS = frozenset(("t", "step", "rank"))
_SPAN_KEY = "log_type_name"


@dataclass(frozen=True)
class LogSource:
    """One readable file. `kind`: ``spans`` for torchtitan's JSON lines, ``text`` for any other log.

    `rank` is global, from a name such as ``rank_3.log``; `local_rank` from torchrun's layout
    ``attempt_<n>/<local_rank>/stdout.log``, which gives `attempt` too. None where the name says nothing.
    """

    name: str
    path: Path
    kind: str
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None


def find_logs(paths: Iterable[Path]) -> tuple[list[LogSource], list[str]]:
    """All logs under `paths`, by content, and a complaint for what cannot be opened.

    Passed over: our own records, binaries, JSON documents, markup; the same file reached twice counts once.
    """
    found: list[LogSource] = []
    complaints: list[str] = []
    seen: set[tuple[int, int]] = set()
    given = list(paths)
    for path in given:
        root = path if path.is_dir() else path.parent
        prefix = f"{path.name}/" if len(given) > 1 and path.is_dir() else ""
        for file in _files(path, complaints):
            name = prefix + str(file.relative_to(root))
            try:
                status = file.stat()
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                with _open(file) as opened:
                    head = _reader(opened)(HEAD_BYTES)
            except UNREADABLE as error:
                complaints.append(f"{name}: {reason(error)}")
                continue
            if kind := sniff(head):
                found.append(_described(name, file, kind))
    return found, complaints


def sniff(head: bytes) -> str | None:
    """What a file is by its first bytes: ``spans``, ``text``, or None for what is not ours to read."""
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        head = head.decode("utf-16", errors="replace").encode()
    elif head.count(0) * 10 > len(head) or head.startswith(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
    ):
        return None
    lines = [line.strip() for line in head.removeprefix(codecs.BOM_UTF8).splitlines()]
    first = [line for line in lines if line][:20]
    if not first or _MARKUP.match(first[0]):
        return None
    objects = [line for line in first if line.startswith(b"{")]
    if len(objects) * 2 <= len(first):
        return None if first[0] == b"{" else "text"
    for keys in map(_keys, objects):
        if keys >= _OURS:
            return None
        if _SPAN_KEY in keys:
            return "spans"
    return None


def blocks(source: LogSource) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a file, a few MiB at a time, each block with the number of its first line, from 1.

    Raises: UNREADABLE, after what stands before the damage.
    """
    number, rest, size = 1, b"", 0
    with _open(source.path) as opened:
        read = _decoded(_reader(opened))
        while True:
            try:
                data = read(BLOCK_BYTES)
            except UNREADABLE:
                if rest:
                    yield number, rest
                raise
            size += len(data)
            if not data:
                break
            if size > MAX_PLAIN_BYTES:
                raise OSError(f"larger than {MAX_PLAIN_BYTES >> 30} GiB: the rest is left out")
            data = rest + data
            cut = data.rfind(b"\n") + 1 or (len(data) if len(data) > MAX_LINE_BYTES else 0)
            if cut:
                yield number, data[:cut]
                number += data.count(b"\n", 0, cut)
            rest = data[cut:]
    if rest:
        yield number, rest


def reason(error: BaseException) -> str:
    """One phrase for a complaint."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _files(path: Path, complaints: list[str]) -> Iterator[Path]:
    """Regular files under a path, in a fixed order; hidden ones and linked folders are left out."""
    if not path.is_dir():
        yield path
        return
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        complaints.append(f"{path.name}: {reason(error)}")
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _files(entry, complaints)
        elif entry.is_file() and entry.suffix.lower() not in _NOT_RECORDS:
            yield entry


def _described(name: str, file: Path, kind: str) -> LogSource:
    parts = file.parts
    attempts = [int(found[1]) for part in parts[:-1] if (found := _ATTEMPT.fullmatch(part))]
    torchrun = (
        len(parts) > 2 and _ATTEMPT.fullmatch(parts[-3]) and parts[-2].isascii() and parts[-2].isdigit()
    )
    ranked = _NAMED_RANK.search(file.name)
    return LogSource(
        name,
        file,
        kind,
        rank=int(ranked[1]) if ranked else None,
        local_rank=int(parts[-2]) if torchrun and len(parts[-2]) < 8 else None,
        attempt=attempts[-1] if attempts else None,
    )


def _keys(line: bytes) -> frozenset[str]:
    """The keys of a JSON object; of a torn one, whether it names a span."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return frozenset((_SPAN_KEY,)) if b'"log_type_name"' in line else frozenset()
    return frozenset(value) if isinstance(value, dict) else frozenset()


def _open(file: Path) -> BinaryIO:
    if not file.is_file():
        raise OSError("not a regular file" if file.exists() else "no such file")
    return file.open("rb")


def _reader(opened: BinaryIO) -> Callable[[int], bytes]:
    """Reads a file, unpacked if it is gzipped."""
    magic = opened.read(len(MAGIC))
    opened.seek(0)
    return Gunzip(opened).read if magic == MAGIC else opened.read


def _decoded(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Reads UTF-16 (a log that PowerShell redirected) as UTF-8, anything else as it is."""
    first = read(2)
    if first not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        held = [first]
        return lambda size: held.pop() or read(size) if held else read(size)
    decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    decoder.decode(first)

    def decode(size: int) -> bytes:
        # One character may be cut off by the end of what was read: that is not the end of the file.
        while data := read(size):
            if text := decoder.decode(data):
                return text.encode(errors="replace")
        return b""

    return decode
