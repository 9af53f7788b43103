"""Finding dumps: folders, files and archives of other people, by any name, safely.

Nothing is ever extracted to disk; members of archives are read in memory, with bounds.
"""

import gzip
import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.diagnose.flight.load import MAX_DUMP_BYTES, NotADump

MAX_MEMBERS = 1 << 16
MAX_DEPTH = 3

_RANK_AT_END = re.compile(r"(?:^|[^0-9])(\d{1,7})$")
_SUFFIXES = (".json", ".pkl", ".pickle", ".bin", ".dump", ".trace")
_NOT_DUMPS = frozenset(
    (
        *(".log", ".txt", ".jsonl", ".py", ".yaml", ".yml", ".md", ".html", ".svg", ".png", ".csv"),
        *(".out", ".err", ".sh", ".toml", ".pipe", ".tmp", ".xml", ".prom"),
    )
)
_BUNDLE_FILES = frozenset(
    "bundle.json run.json ranks.json launcher.json diagnosis.json verdict.json gpu.json watchdog.json".split()  # noqa: SIM905
)
_BUNDLE_FOLDERS = frozenset(("stacks", "signals", "logs", "live", "hardware", "memory", "infiniband"))


@dataclass(frozen=True)
class DumpSource:
    """One file that may be a dump. `rank` from its name, None where the name has none."""

    name: str
    rank: int | None
    written_s: float | None
    size: int
    read: Callable[[], bytes]


def rank_from_name(name: str) -> int | None:
    """The rank that a file name ends with: ``rank_5``, ``host_5``, ``h.0_rank_5``, ``5.json``."""
    base = PurePosixPath(name).name
    for suffix in (".gz", *_SUFFIXES):
        base = base.removesuffix(suffix)
    match = _RANK_AT_END.search(base)
    return int(match.group(1)) if match else None


def find_dumps(paths: Iterable[Path]) -> tuple[list[DumpSource], list[str]]:
    """All candidates under `paths`, and a complaint for what cannot be opened."""
    found: list[DumpSource] = []
    complaints: list[str] = []
    given = list(paths)
    for path in given:
        root = path if path.is_dir() else path.parent
        prefix = f"{path.name}/" if len(given) > 1 and path.is_dir() else ""
        for file in _files(path):
            name = prefix + str(file.relative_to(root))
            try:
                found.extend(_open(name, file, complaints))
            except (OSError, NotADump, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
                complaints.append(f"{name}: {_reason(error)}")
    return found, complaints


def _files(path: Path) -> Iterator[Path]:
    """Regular files under a path, in a fixed order; dangling links, pipes and devices are left out."""
    if not path.is_dir():
        yield path
        return
    for entry in sorted(path.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in _BUNDLE_FOLDERS:
                yield from _files(entry)
        elif entry.is_file() and _may_be_dump(entry.name):
            yield entry


def _may_be_dump(name: str) -> bool:
    base = name.removesuffix(".gz")
    return name not in _BUNDLE_FILES and PurePosixPath(base).suffix not in _NOT_DUMPS


def _open(name: str, file: Path, complaints: list[str]) -> Iterator[DumpSource]:
    if not file.is_file():
        raise NotADump("not a regular file")
    stat = file.stat()
    lower = file.name.lower()
    if lower.endswith((".tar", ".tar.gz", ".tgz")):
        yield from _tar(name, file.read_bytes, complaints)
    elif lower.endswith(".zip"):
        yield from _zip(name, file, complaints)
    else:
        yield DumpSource(name, rank_from_name(file.name), stat.st_mtime, stat.st_size, _reader(file))


def _reader(file: Path) -> Callable[[], bytes]:
    def read() -> bytes:
        if file.stat().st_size > MAX_DUMP_BYTES:
            raise NotADump(f"{file.stat().st_size} bytes: larger than any dump")
        return _gunzip(file.read_bytes())

    return read


def _gunzip(data: bytes) -> bytes:
    """Unpack gzip if it is that, never to more than a dump may have."""
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            plain = file.read(MAX_DUMP_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise NotADump(f"broken gzip ({error})") from None
    if len(plain) > MAX_DUMP_BYTES:
        raise NotADump("unpacks to more than any dump has")
    return plain


def _tar(name: str, read: Callable[[], bytes], complaints: list[str]) -> Iterator[DumpSource]:
    data = read()
    if data[:2] == b"\x1f\x8b":
        data = _gunzip(data)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for count, member in enumerate(archive):
            if count >= MAX_MEMBERS:
                complaints.append(f"{name}: more than {MAX_MEMBERS} members, the rest is left out")
                return
            if not member.isfile() or not _may_be_dump(PurePosixPath(member.name).name):
                continue
            if member.size > MAX_DUMP_BYTES:
                complaints.append(f"{name}:{member.name}: larger than any dump")
                continue
            opened = archive.extractfile(member)
            content = opened.read() if opened else b""
            yield _member(name, member.name, float(member.mtime), content)


def _zip(name: str, file: Path, complaints: list[str]) -> Iterator[DumpSource]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist()[:MAX_MEMBERS]:
            if member.is_dir() or not _may_be_dump(PurePosixPath(member.filename).name):
                continue
            if member.file_size > MAX_DUMP_BYTES:
                complaints.append(f"{name}:{member.filename}: larger than any dump")
                continue
            try:
                with archive.open(member) as opened:
                    content = opened.read(MAX_DUMP_BYTES + 1)
            except (RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, EOFError) as error:
                complaints.append(f"{name}:{member.filename}: {_reason(error)}")
                continue
            yield _member(name, member.filename, None, content)


def _member(archive: str, member: str, written: float | None, content: bytes) -> DumpSource:
    return DumpSource(
        f"{archive}:{member}", rank_from_name(member), written, len(content), lambda: _gunzip(content)
    )


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
