"""Cutting files of any size into blocks of whole lines, in bounded memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
"""Fits a core's own cache, twice."""

MAX_UNPACKED_BYTES = 64 << 30
"""What a packed file may unpack to; a plain one may have any size."""


class Block(NamedTuple):
    """Whole lines: the first `end` bytes of `data`, which may hold more. `whole`: its last line has an end.

    A line longer than a block is cut at its carriage returns, if it has any; otherwise the block holds its
    beginning, and the next block begins with its end. Blocks of nothing but zeros are passed over.
    """

    data: bytearray
    end: int
    whole: bool


@dataclass
class Blocks:
    """The blocks of a file, packed or not. `complaints`: what is wrong with it, said while it is read."""

    path: Path
    size: int = 0
    """Bytes a block; 0: BLOCK_BYTES."""

    memory: list[bytearray] | None = None
    """What is lent by `lent_memory`: each block but the last two is overwritten then."""

    complaints: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Block]:
        """Whatever happens to the file meanwhile, what can be read of it comes, and nothing is raised."""
        size = self.size or BLOCK_BYTES
        try:
            with open_regular(self.path) as opened:
                if is_plain(opened):
                    yield from self._cut(_Plain(opened.fileno()), size)
                else:
                    yield from self._cut(_Packed(decoded(reader(opened))), size)
        except UNREADABLE as error:
            self.complaints.append(reason(error))

    def _cut(self, source: "_Plain | _Packed", size: int) -> Iterator[Block]:
        memory = _buffers(size, self.memory)
        data, have, rest, ended, hole, endless = bytearray(), 0, 0, False, False, 0
        while not ended:
            before, data, hole = data, data if hole else next(memory), False
            data[:rest] = before[have - rest : have]
            count, ended, error = source.fill(memoryview(data)[rest:size])
            have = cut = rest + count
            if not ended:
                cut = data.rfind(b"\n", 0, have) + 1 or data.rfind(b"\r", 0, have) + 1
            if cut:
                yield Block(data, cut, data[cut - 1] in b"\r\n")
                rest = have - cut
            elif have and data.count(0, 0, have) == have:
                # A hole where a node went down or a log was truncated: the text goes on behind it.
                have, rest, hole = 0, 0, True
            elif have:
                endless += 1
                yield Block(data, have, False)
                data = bytearray(size)
                have, rest, ended, error = _skip(source, data)
            if error is not None:
                self.complaints.append(reason(error))
        if endless:
            lines = "a line is" if endless == 1 else f"{endless} lines are"
            self.complaints.append(f"{lines} longer than {size >> 10} KiB: only the beginning was read")


_spare: list[list[bytearray]] = []


@contextmanager
def lent_memory() -> Iterator[list[bytearray]]:
    """Memory for the blocks of one file, and then of the next: new memory costs more than reading into it."""
    memory = _spare.pop() if _spare else []
    try:
        yield memory
    finally:
        _spare.append(memory)


def _buffers(size: int, kept: list[bytearray] | None) -> Iterator[bytearray]:
    """Memory for one block after the other. Three, since one more is filled while two are in use."""
    if kept is not None and (not kept or len(kept[0]) != size):
        kept[:] = [bytearray(size) for _ in range(3)]
    while True:
        yield from kept or (bytearray(size),)


Filled = tuple[int, bool, BaseException | None]
"""How many bytes came, whether they are the last ones, and what is wrong."""


class _Plain:
    """A file as it lies."""

    def __init__(self, fd: int) -> None:
        self._fd, self._at = fd, 0
        # What is written meanwhile is left: a writer may be faster than this.
        self._end = os.fstat(fd).st_size

    def fill(self, memory: memoryview) -> Filled:
        """Read the next bytes."""
        want = min(len(memory), self._end - self._at)
        try:
            count = os.preadv(self._fd, [memory[:want]], self._at)
        except OSError as error:
            return 0, True, error
        self._at += count
        return count, self._at >= self._end or count < want, None


class _Packed:
    """Something that can only be read once, from the beginning."""

    def __init__(self, read: Reader) -> None:
        self._read, self._done = read, 0

    def fill(self, memory: memoryview) -> Filled:
        """Unpack the next bytes."""
        data, error = filled(self._read, len(memory))
        memory[: len(data)] = data
        self._done += len(data)
        if error is None and self._done > MAX_UNPACKED_BYTES:
            error = OSError(f"unpacks to more than {MAX_UNPACKED_BYTES >> 30} GiB: the rest is left out")
        return len(data), error is not None or len(data) < len(memory), error


def _skip(source: _Plain | _Packed, data: bytearray) -> tuple[int, int, bool, BaseException | None]:
    """Read on to the end of a line: how much was read last, how much of it is still to be cut."""
    while True:
        have, ended, error = source.fill(memoryview(data))
        ends = (data.find(end, 0, have) for end in (b"\n", b"\r"))
        at = min((found for found in ends if found >= 0), default=-1)
        if at >= 0:
            # Even if the file is at its end, this is still to be cut; the error will be met again.
            return have, have - at, False, None
        if ended:
            return have, 0, True, error
