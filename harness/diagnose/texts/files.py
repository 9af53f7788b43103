"""Finding text files: under folders, by globs, in archives, packed or not, by any name."""

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from harness.diagnose.texts.archives import Unpacking, is_archive
from harness.diagnose.texts.dress import Dress, dress_of
from harness.diagnose.texts.globs import is_glob
from harness.diagnose.texts.names import said_by
from harness.diagnose.texts.sniff import BINARY, EMPTY, HEAD_BYTES, SPANS, TEXT, sniff
from harness.diagnose.texts.unpack import UNREADABLE, decoded, filled, open_regular, reader, reason

_NOT_RECORDS = frozenset((".md", ".py", ".html", ".yaml", ".yml", ".toml", ".rst"))
"""Documents and sources quote records; they are none."""

_EXPECTED = frozenset((".log", ".out", ".err", ".txt", ".stderr", ".stdout", ".gz", ".bz2", ".xz"))
"""Inside a folder, what has one of these names and cannot be read is complained of."""

_UNKNOWN_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4", b"7z\xbc\xaf": "7z"}
_KINDS_OF_FILES = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass(frozen=True)
class TextFile:
    """One readable file. `kind`: ``spans`` for torchtitan's JSON lines, ``text`` for any other log.

    `name` is relative to the path that was given; of a member of an archive, ``archive.tar.gz/member``.
    `path` is where the bytes are, `size_bytes` what they take there, packed or not. `rank` is global, from a
    name such as ``rank_3.log``; `local_rank` from torchrun's layout ``attempt_<n>/<local_rank>/stderr.log``,
    which gives `attempt` too; `node` is the number in ``error-JOBID-3.out`` or ``node_3.log``, which need not
    count from 0; `host` from ``worker-3.err``. None where the name says nothing.
    """

    name: str
    path: Path
    kind: str
    size_bytes: int = 0
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    node: int | None = None
    host: str | None = None
    dress: Dress | None = None


def find_texts(paths: Sequence[Path], scratch: Path) -> tuple[list[TextFile], list[str]]:
    """All logs under `paths`, by content, and a complaint for what cannot be read.

    Members of archives are put into `scratch`, an empty folder. Passed over in folders: hidden files, linked
    folders, our own records, binaries, documents. The same file reached twice counts once.
    """
    search = _Search(Unpacking(scratch))
    given = [place for path in paths for place in search.places(path)]
    for path, named in given:
        search.add(path, folder=len(given) > 1, named=named)
    return search.files(), search.complaints


@dataclass
class _Search:
    unpacking: Unpacking
    complaints: list[str] = field(default_factory=list)
    _found: list[tuple[TextFile, str]] = field(default_factory=list)
    _seen: dict[tuple[int, int], Path] = field(default_factory=dict)

    def places(self, path: Path) -> list[tuple[Path, bool]]:
        """A path as given; one that is none, but a pattern, as what fits it. With whether it was named."""
        if not is_glob(path) or os.path.lexists(path):
            return [(path, True)]
        # The whole path is the pattern, from the root on.
        fitting = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
        if not fitting:
            self.complaints.append(f"{path}: fits nothing")
        return [(Path(one), False) for one in fitting]

    def add(self, path: Path, *, folder: bool, named: bool) -> None:
        """Everything under one given path. `folder`: whether its own name is part of the names."""
        inside = path.is_dir()
        prefix = f"{path.name}/" if folder and inside else ""
        before, again = len(self.complaints), 0
        count = 0
        for file in _files(path, self.complaints):
            count += 1
            name = prefix + str(file.relative_to(path)) if inside else file.name
            expected = not inside or PurePosixPath(name).suffix.lower() in _EXPECTED
            try:
                status = file.stat()
                key = (status.st_dev, status.st_ino)
                again += self._seen.get(key, path) != path or (named and not inside and key in self._seen)
                if key not in self._seen:
                    self._seen[key] = path
                    self._look(name, file, status, expected=expected)
            except UNREADABLE as error:
                if expected or not file.is_symlink():
                    self.complaints.append(f"{name}: {reason(error)}")
        if again and named:
            self.complaints.append(f"{path.name}: reached by another path too, read once")
        if inside and not count and len(self.complaints) == before:
            self.complaints.append(f"{path.name}: an empty folder")

    def files(self) -> list[TextFile]:
        """What was found; where two have one name, under their paths as given."""
        names = [file.name for file, _ in self._found]
        twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
        return [replace(file, name=place) if file.name in twice else file for file, place in self._found]

    def _look(self, name: str, file: Path, status: os.stat_result, *, expected: bool) -> None:
        for is_kind, what in _KINDS_OF_FILES:
            if is_kind(status.st_mode):
                if expected:
                    self.complaints.append(f"{name}: {what}, not read")
                return
        if is_archive(file, PurePosixPath(name).name):
            for member in self.unpacking.members(file, name, self.complaints):
                self._take(member.name, member.path, expected=False, parts=(*file.parts[:-1],), above=name)
            return
        self._take(name, file, expected=expected, parts=file.parts[:-1], above="")

    def _take(self, name: str, file: Path, *, expected: bool, parts: Sequence[str], above: str) -> None:
        head = _head(file)
        kind = sniff(head)
        named = name.lower().endswith((".zst", ".lz4", ".7z"))
        if (kind == BINARY or named) and (packer := _packer(file)):
            self.complaints.append(f"{name}: packed with {packer}: unpack it first")
            return
        if kind in (BINARY, EMPTY) and expected:
            self.complaints.append(f"{name}: {'nothing in it' if kind == EMPTY else 'binary, no text'}")
        if kind not in (SPANS, TEXT):
            return
        inner = name[len(above) :].strip("/").split("/") if above else [file.name]
        own = len(PurePosixPath(name).parts)
        said = said_by([*parts, *inner], own)
        dress = dress_of(head) if kind == TEXT else None
        text = TextFile(name, file, kind, file.stat().st_size, **vars(said), dress=dress)
        self._found.append((text, name if above else str(file)))


def _head(file: Path) -> bytes:
    """A file's first bytes, unpacked, or its last if it begins with a hole. Raises: UNREADABLE."""
    with open_regular(file) as opened:
        head, error = filled(decoded(reader(opened)), HEAD_BYTES)
        if error is not None and not head:
            raise error
        if head and not head.strip(b"\0"):
            opened.seek(max(opened.seek(0, os.SEEK_END) - HEAD_BYTES, 0))
            head = opened.read(HEAD_BYTES)
        return head


def _packer(file: Path) -> str | None:
    with open_regular(file) as opened:
        magic = opened.read(4)
    return _UNKNOWN_PACKED.get(magic)


def _files(path: Path, complaints: list[str]) -> Iterator[Path]:
    """Files under a path, in a fixed order; hidden ones and linked folders are left out."""
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
        if entry.is_dir():
            if not entry.is_symlink():
                yield from _files(entry, complaints)
        elif entry.suffix.lower() not in _NOT_RECORDS:
            yield entry
