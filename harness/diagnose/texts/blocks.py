"""Cutting files of any size into blocks of whole lines, in bounded memory."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.diagnose.texts.unpack import (
    UNREADABLE,
    Reader,
    decoded,
    filled,
    is_plain,
    open_regular,
    reader,
    reason,
)

BLOCK_BYTES = 1 << 19
"""Larger ones come from the system afresh each time, which costs more than reading them."""

MAX_UNPACKED_BYTES = 64 << 30
"""What a packed file may unpack to; a plain one may have any size."""


class Block(NamedTuple):
    """Whole lines: the first `end` bytes of `data`, which may hold more. `whole`: its last line has an end.

    A line longer than a block is cut at its carriage returns, if it has any; otherwise the block holds its
    beginning, and the next block begins with its end.
    """

    data: bytes
    end: int
    whole: bool


@dataclass
class Blocks:
    """The blocks of a file, packed or not. `complaints`: what is wrong with it, said while it is read."""

    path: Path
    size: int = 0
    """Bytes a block; 0: BLOCK_BYTES."""

    complaints: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Block]:
        """Whatever happens to the file meanwhile, what can be read of it comes, and nothing is raised."""
        size = self.size or BLOCK_BYTES
        try:
            with open_regular(self.path) as opened:
                if is_plain(opened):
                    yield from self._cut(_Plain(opened.fileno(), size), size)
                else:
                    yield from self._cut(_Packed(decoded(reader(opened)), size), size)
        except UNREADABLE as error:
            self.complaints.append(reason(error))

    def _cut(self, source: "_Plain | _Packed", size: int) -> Iterator[Block]:
        rest, ended, endless = b"", False, 0
        while not ended:
            data, ended, error = source.next(rest)
            cut = len(data)
            if not ended:
                cut = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
            if cut:
                yield Block(data, cut, data[cut - 1] in b"\r\n")
                rest = data[cut:]
            elif data:
                endless += 1
                yield Block(data, len(data), False)
                rest, ended, error = _skip(source)
            if error is not None:
                self.complaints.append(reason(error))
        if endless:
            lines = "a line is" if endless == 1 else f"{endless} lines are"
            self.complaints.append(f"{lines} longer than {size >> 10} KiB: only the beginning was read")


class _Plain:
    """A file as it lies. What comes back is read again: cheaper than to copy all that does not."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._size = fd, size
        self._at = 0
        # What is written meanwhile is left: a writer may be faster than this.
        self._end = os.fstat(fd).st_size

    def next(self, rest: bytes) -> tuple[bytes, bool, BaseException | None]:
        """The next bytes, of which `rest` are the first; whether they are the last ones; what is wrong."""
        begin = self._at - len(rest)
        try:
            data = os.pread(self._fd, min(self._size, self._end - begin), begin)
        except OSError as error:
            return rest, True, error
        self._at = begin + len(data)
        return data, self._at >= self._end or len(data) < self._size, None


class _Packed:
    """Something that can only be read once, from the beginning."""

    def __init__(self, read: Reader, size: int) -> None:
        self._read, self._size = read, size
        self._done = 0

    def next(self, rest: bytes) -> tuple[bytes, bool, BaseException | None]:
        """The next bytes, of which `rest` are the first; whether they are the last ones; what is wrong."""
        want = self._size - len(rest)
        data, error = filled(self._read, want)
        self._done += len(data)
        if error is None and self._done > MAX_UNPACKED_BYTES:
            error = OSError(f"unpacks to more than {MAX_UNPACKED_BYTES >> 30} GiB: the rest is left out")
            return rest + data, True, error
        return rest + data, error is not None or len(data) < want, error


def _skip(source: _Plain | _Packed) -> tuple[bytes, bool, BaseException | None]:
    """Read on to the end of a line; what comes back begins with it, and is empty if nothing follows."""
    while True:
        data, ended, error = source.next(b"")
        at = min((found for end in (b"\n", b"\r") if (found := data.find(end)) >= 0), default=-1)
        if at >= 0:
            # Even if the file is at its end, this is still to be cut; the error will be met again.
            return data[at:], False, None
        if ended:
            return b"", True, error
