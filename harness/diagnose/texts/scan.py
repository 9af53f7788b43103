"""One run over a text file for many patterns at once, and the lines that they match."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import hyperscan
import numpy as np

from harness.diagnose.texts.blocks import Block, Blocks
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import Line, line_of

HEAD = "HEAD"
HEAD_LINES = 80
"""The first lines of a file have this tag: who speaks in it, and how it begins."""

TAIL = "TAIL"
TAIL_LINES = 8
"""The last lines of a file have this tag; fewer if they are very long."""

SAMPLE = "SAMPLE"
SAMPLE_LINES = 2
"""The first lines of each block have this tag: a part of a file that nobody complains in."""

_HERE = {HEAD: 1, TAIL: 2, SAMPLE: 4}
_FIRST_BIT = 3
_FLAGS = hyperscan.HS_FLAG_MULTILINE
_LINE_END = ord("\n")

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Pattern:
    """A regular expression that gives a line its tag; several may give the same.

    Matched against bytes as they stand in the file, colours included. Hyperscan's dialect: no groups to look
    around or back; ``^`` and ``$`` are the line's. ``[^x]`` and ``\\s`` match line ends too, so bound them:
    the line in which a match ends gets the tag. A pattern ends with what must stand there, not with a repeat:
    each of its ends is a match.
    """

    tag: str
    regex: str
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if self.regex.endswith(("*", "+", "?", ",}")) and self.regex[-2:-1] != "\\":
            raise ValueError(f"pattern {self.regex!r} ends with a repeat: each of its ends would be a match")


class Scanner:
    """Patterns that are looked for together. Compiled once in a process; a forked child has them too.

    Raises: hyperscan.error, for a pattern that is none.
    """

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self._compiled = _compiled(self.patterns)

    def __reduce__(self) -> tuple[type["Scanner"], tuple[tuple[Pattern, ...]]]:
        # A database does not pickle, and need not: the other process has it, or compiles it once.
        return Scanner, (self.patterns,)

    def lines(self, file: TextFile) -> "Lines":
        """The lines of a file that a pattern matches, or that stand at its begin, its end, or a block's."""
        return Lines(Blocks(file.path), self._compiled)


class Lines:
    """Yields lines in order, and each next line while `follow` is set; a generator of one pass.

    Of a line with carriage returns inside, the parts that match come, one by one under the same number; the
    last one if none does. Never raises for what is in a file: `complaints` says, once all was read, what was
    wrong with it, without its name.
    """

    def __init__(self, blocks: Blocks, compiled: "_Compiled") -> None:
        self._blocks = blocks
        self._compiled = compiled
        self.follow = False

    @property
    def complaints(self) -> Sequence[str]:
        """Phrases, complete when the last line has come."""
        return self._blocks.complaints

    def __iter__(self) -> Iterator[Line]:
        number = 1
        for block, last in _with_last(self._blocks):
            hits = self._compiled.scan(memoryview(block.data)[: block.end])
            ends = _line_ends(block)
            marks = _marks(len(ends), HEAD_LINES + 1 - number, last=last)
            _add_hits(marks, ends, hits)
            yield from self._of_block(number, block, ends, marks, hits)
            # The last line of a block may go on in the next one.
            number += len(ends) - (block.data[block.end - 1] != _LINE_END)

    def _of_block(
        self, number: int, block: Block, ends: Ints, marks: dict[int, int], hits: Sequence[int]
    ) -> Iterator[Line]:
        """`ends`: where lines end. `marks`: of each wanted line its bits, by index, as everything here."""
        data, last = block.data, len(ends) - 1
        wanted = sorted(marks)
        places = np.array(wanted, np.int64)
        stops = ends[places].tolist()
        starts = (np.where(places > 0, ends[places - 1] + 1, 0)).tolist()
        at, following = 0, -1
        while True:
            if self.follow:
                following += 1
                if following > last:
                    return
                index, stop = following, int(ends[following])
                start = int(ends[index - 1]) + 1 if index else 0
                if at < len(wanted) and wanted[at] == index:
                    at += 1
            elif at < len(wanted):
                index, start, stop = wanted[at], starts[at], stops[at]
                following = index
                at += 1
            else:
                return
            whole = block.whole or index < last
            raw = data[start:stop].rstrip(b"\r")
            mask = marks.get(index, 0)
            if b"\r" in raw:
                yield from self._parts(number + index, raw, start, mask, hits, whole=whole)
            else:
                yield line_of(number + index, raw, self._compiled.tags(mask), whole=whole)

    def _parts(
        self, number: int, raw: bytes, start: int, mask: int, hits: Sequence[int], *, whole: bool
    ) -> Iterator[Line]:
        """A progress bar puts many lines into one, with carriage returns between."""
        here = mask & sum(_HERE.values())
        matched = mask != here
        found = iter(_within(hits, start, start + len(raw)))
        hit = next(found, None)
        parts = raw.split(b"\r")
        last = len(parts) - 1
        for index, part in enumerate(parts):
            own = 0
            while hit is not None and (hit >> _ID_BITS) - 1 <= start + len(part):
                own |= 1 << (hit & _ID_MASK)
                hit = next(found, None)
            start += len(part) + 1
            if own or self.follow or (index == last and not matched):
                tags = self._compiled.tags(own | here)
                yield line_of(number, part, tags, whole=whole or index != last)


_ID_BITS = 12
_ID_MASK = (1 << _ID_BITS) - 1


class _Compiled:
    """A database, and a name for each set of bits. Hits are ints: where a match ends, then its bit."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        names = tuple(dict.fromkeys(pattern.tag for pattern in patterns))
        self._names = (*_HERE, *names)
        self._known: dict[int, frozenset[str]] = {}
        self._database: hyperscan.Database | None = None
        if patterns:
            caseless = hyperscan.HS_FLAG_CASELESS
            self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
            self._database.compile(
                expressions=[pattern.regex.encode() for pattern in patterns],
                ids=[names.index(pattern.tag) + _FIRST_BIT for pattern in patterns],
                elements=len(patterns),
                flags=[_FLAGS | (caseless if pattern.ignore_case else 0) for pattern in patterns],
            )

    def scan(self, data: memoryview) -> list[int]:
        """Where patterns match, in order."""
        hits = list[int]()
        if self._database is not None and len(data):

            def matched(tag: int, begin: int, end: int, flags: int, context: object) -> None:
                hits.append(end << _ID_BITS | tag)

            # Its stubs know of no views; it takes any buffer.
            self._database.scan(cast(bytes, data), match_event_handler=matched)
            hits.sort()
        return hits

    def tags(self, mask: int) -> frozenset[str]:
        """The names of some bits."""
        known = self._known.get(mask)
        if known is None:
            known = frozenset(name for bit, name in enumerate(self._names) if mask >> bit & 1)
            self._known[mask] = known
        return known


@lru_cache(maxsize=16)
def _compiled(patterns: tuple[Pattern, ...]) -> _Compiled:
    return _Compiled(patterns)


def _with_last(blocks: Iterable[Block]) -> Iterator[tuple[Block, bool]]:
    """Each block, and whether it is the last one; that one has enough lines for a tail, if the file has."""
    before: Block | None = None
    held: Block | None = None
    for block in blocks:
        if before is not None:
            yield before, False
        before, held = held, block
    if before is not None and held is not None and before.whole:
        if held.data.count(b"\n", 0, held.end) < TAIL_LINES:
            held = Block(before.data[: before.end] + held.data[: held.end], before.end + held.end, held.whole)
        else:
            yield before, False
    elif before is not None:
        yield before, False
    if held is not None:
        yield held, True


def _line_ends(block: Block) -> Ints:
    """Where the lines of a block end; the last one where the block does, if it has no end there."""
    data = np.frombuffer(block.data, np.uint8, block.end)
    ends = np.flatnonzero(data == _LINE_END)
    return ends if data[-1] == _LINE_END else np.append(ends, block.end)


def _marks(count: int, head: int, *, last: bool) -> dict[int, int]:
    """Lines that are wanted for where they stand, by index, each with its bits."""
    marks = dict.fromkeys(range(min(SAMPLE_LINES, count)), _HERE[SAMPLE])
    for index in range(min(head, count)):
        marks[index] = marks.get(index, 0) | _HERE[HEAD]
    for index in range(max(count - TAIL_LINES, 0), count) if last else ():
        marks[index] = marks.get(index, 0) | _HERE[TAIL]
    return marks


def _add_hits(marks: dict[int, int], ends: Ints, hits: Sequence[int]) -> None:
    if not hits:
        return
    found = np.array(hits, np.int64)
    lines = np.searchsorted(ends, (found >> _ID_BITS) - 1).tolist()
    for index, hit in zip(lines, hits, strict=True):
        marks[index] = marks.get(index, 0) | 1 << (hit & _ID_MASK)


def _within(hits: Sequence[int], start: int, end: int) -> Sequence[int]:
    """The hits that end in a part of a block."""
    return hits[bisect_left(hits, start + 1 << _ID_BITS) : bisect_left(hits, end + 2 << _ID_BITS)]
