"""Following growing files: every appended line once, whatever happens to the files meanwhile.

Files are known by device and inode, so a rotated file is read to its end under its new name. The last bytes
that were read are compared before reading on: a file that was truncated and has grown past the old end is
told from one that grew.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

FIRST_BYTES = 1 << 18
"""Of a file that is there already, only so many bytes from its end are read: the newest records."""

READ_BYTES = 1 << 22
"""At most so much of one file in one poll; the rest in the next."""

LINE_BYTES = 1 << 20
"""A longer line is no record: it is passed over as it comes."""

MARK_BYTES = 64
MISSED_POLLS = 60
"""A file that is missing from so many polls in a row is forgotten; a share that hiccups is not."""

DEPTH = 6
_ROTATED = re.compile(r"\.jsonl[.-][\w.-]+$")

Key = tuple[int, int]


@dataclass(frozen=True)
class Lines:
    """Whole lines that are new in one file, without their ends. `modified`: unix seconds, the file's own."""

    path: str
    lines: tuple[bytes, ...]
    modified: float
    backlog: bool
    """Whether they were there before this follower came: their arrival was not seen."""


@dataclass
class _File:
    path: str
    offset: int
    mark: bytes = b""
    skipping: bool = False
    missed: int = 0


@dataclass
class Follower:
    """Follows all ``*.jsonl`` under some folders, and some files by their names.

    `read_from_end`: files at which only what comes after the first poll counts.
    """

    folders: Sequence[Path]
    files: Sequence[Path] = ()
    read_from_end: Sequence[Path] = ()
    problems: dict[str, str] = field(default_factory=dict)
    """What cannot be read now, and why."""
    truncations: int = 0
    overlong: int = 0
    _known: dict[Key, _File] = field(default_factory=dict)
    _polled: bool = False

    def __post_init__(self) -> None:
        self._from_end = frozenset(map(str, self.read_from_end))

    def poll(self) -> Iterator[Lines]:
        """What is new since the last poll, each file's lines in order, rotated files before their heirs."""
        self.problems = {}
        seen: set[Key] = set()
        found = list(self._stats())
        # A rotated file's last lines come before its heir's first.
        for path, stat in sorted(found, key=lambda item: (_key(item[1]) not in self._known, item[0])):
            key = _key(stat)
            if key in seen:
                continue
            seen.add(key)
            if key not in self._known and _ROTATED.search(path):
                continue
            yield from self._new_lines(key, path, stat)
        self._forget(seen)
        self._polled = True

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that were there in the last poll."""
        return tuple(known.path for known in self._known.values() if not known.missed)

    def _stats(self) -> Iterator[tuple[str, os.stat_result]]:
        for folder in self.folders:
            yield from self._walk(str(folder), DEPTH)
        for file in (*self.files, *self.read_from_end):
            try:
                yield str(file), file.stat()
            except FileNotFoundError:
                pass  # it may come yet
            except OSError as error:
                self.problems[str(file)] = error.strerror or str(error)
            with suppress(OSError):
                stat = Path(rotated := f"{file}.1").stat()
                if _key(stat) in self._known:
                    yield rotated, stat

    def _walk(self, folder: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".jsonl") or _ROTATED.search(entry.name):
                        stat = entry.stat()
                        yield entry.path, stat
                    elif depth and entry.is_dir(follow_symlinks=False):
                        yield from self._walk(entry.path, depth - 1)
        except OSError as error:
            self.problems[folder] = error.strerror or str(error)

    def _new_lines(self, key: Key, path: str, stat: os.stat_result) -> Iterator[Lines]:
        known = self._known.get(key)
        backlog = known is None and not self._polled
        if known is None:
            known = self._known[key] = _File(path, self._first_offset(path, stat.st_size))
            known.skipping = known.offset > 0 and path not in self._from_end
        known.path, known.missed = path, 0
        if stat.st_size < known.offset:
            self._start_over(known)
        if stat.st_size == known.offset:
            return
        try:
            lines = self._read(known)
        except OSError as error:
            self.problems[path] = error.strerror or str(error)
            return
        if lines:
            yield Lines(path, tuple(lines), stat.st_mtime, backlog)

    def _first_offset(self, path: str, size: int) -> int:
        if path in self._from_end and not self._polled:
            return size
        return max(0, size - FIRST_BYTES)

    def _read(self, known: _File) -> list[bytes]:
        fd = os.open(known.path, os.O_RDONLY)
        try:
            data = self._after_mark(fd, known)
            if data is None:
                self._start_over(known)
                data = os.pread(fd, READ_BYTES, 0)
        finally:
            os.close(fd)
        end = data.rfind(b"\n") + 1
        if not end:
            if len(data) > LINE_BYTES:
                self.overlong += not known.skipping
                known.skipping = True
                self._advance(known, data)
            return []
        whole = data[:end]
        self._advance(known, whole)
        lines = whole.split(b"\n")[:-1]
        if known.skipping:
            known.skipping = False
            del lines[0]
        return [line for line in lines if line]

    def _after_mark(self, fd: int, known: _File) -> bytes | None:
        """What follows the offset; None if what stands before it is not what was read there."""
        before = len(known.mark)
        data = os.pread(fd, READ_BYTES + before, known.offset - before)
        return data[before:] if data[:before] == known.mark else None

    def _start_over(self, known: _File) -> None:
        """The file's content is another one: all of it is new."""
        known.offset, known.mark, known.skipping = 0, b"", False
        self.truncations += 1

    @staticmethod
    def _advance(known: _File, data: bytes) -> None:
        known.offset += len(data)
        known.mark = (known.mark + data[-MARK_BYTES:])[-MARK_BYTES:]

    def _forget(self, seen: set[Key]) -> None:
        for key, known in list(self._known.items()):
            if key not in seen:
                known.missed += 1
                if known.missed > MISSED_POLLS:
                    del self._known[key]


def _key(stat: os.stat_result) -> Key:
    return stat.st_dev, stat.st_ino
