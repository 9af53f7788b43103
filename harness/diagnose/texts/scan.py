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
    """Patterns that are looked for together. Compiled by each process that uses them, once."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self.patterns = tuple(patterns)

    def lines(self, file: TextFile) -> "Lines":
        """The lines of a file that a pattern matches, or that stand at its begin, its end, or a block's.

        Raises: hyperscan.error, for a pattern that is none.
        """
        return Lines(Blocks(file.path, reuse=True), _compiled(self.patterns))


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
        ends = _LineEnds()
        for block, last in _with_last(self._blocks):
            hits = self._compiled.scan(memoryview(block.data)[: block.end])
            ends.of(block)
            marks = _marks(block, max(HEAD_LINES + 1 - number, 0), last=last)
            _add_hits(marks, block, hits)
            yield from self._of_block(number, block, ends, marks, hits)
            # The last line of a block may go on in the next one.
            number += ends.before(block.end)

    def _of_block(
        self, number: int, block: Block, ends: "_LineEnds", marks: dict[int, int], hits: Sequence[int]
    ) -> Iterator[Line]:
        """`number`: of the block's first line. `marks`: of each wanted line its bits, by where it begins."""
        data, end = block.data, block.end
        wanted = iter(sorted(marks))
        marked = next(wanted, end)
        start = 0
        while True:
            if not self.follow:
                start = marked
            if start >= end:
                return
            if start == marked:
                marked = next(wanted, end)
            stop = _stop(data, start, end)
            whole = block.whole or stop < end
            raw = data[start:stop].rstrip(b"\r")
            mask = marks.get(start, 0)
            at = number + ends.before(start)
            if b"\r" in raw:
                yield from self._parts(at, raw, start, mask, hits, whole=whole)
            else:
                yield line_of(at, raw, self._compiled.tags(mask), whole=whole)
            start = stop + 1

    def _parts(
        self, number: int, raw: bytearray, start: int, mask: int, hits: Sequence[int], *, whole: bool
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


class _LineEnds:
    """Counts the line ends of one block after the other."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.bool_)
        self._are = self._memory
        self._counted = self._to = 0

    def of(self, block: Block) -> None:
        """Begin with a block."""
        if len(self._memory) < block.end:
            # Kept for the next ones: new memory costs ten times what comparing does.
            self._memory = np.empty(len(block.data), np.bool_)
        data = np.frombuffer(block.data, np.uint8, block.end)
        self._are = np.equal(data, _LINE_END, out=self._memory[: block.end])
        self._counted = self._to = 0

    def before(self, place: int) -> int:
        """How many there are before a place, which is not before the last one that was asked for."""
        self._counted += int(np.count_nonzero(self._are[self._to : place]))
        self._to = place
        return self._counted


def _stop(data: bytearray, start: int, end: int) -> int:
    """Where the line that begins at `start` ends."""
    found = data.find(b"\n", start, end)
    return end if found < 0 else found


def _marks(block: Block, head: int, *, last: bool) -> dict[int, int]:
    """Lines that are wanted for where they stand, by where they begin, each with its bits."""
    marks: dict[int, int] = {}
    start = 0
    for index in range(max(SAMPLE_LINES, head)):
        if start >= block.end:
            break
        marks[start] = (_HERE[SAMPLE] if index < SAMPLE_LINES else 0) | (_HERE[HEAD] if index < head else 0)
        start = _stop(block.data, start, block.end) + 1
    start = block.end
    for _ in range(TAIL_LINES if last else 0):
        if not start:
            break
        start = block.data.rfind(b"\n", 0, start - 1) + 1
        marks[start] = marks.get(start, 0) | _HERE[TAIL]
    return marks


def _add_hits(marks: dict[int, int], block: Block, hits: Sequence[int]) -> None:
    start, stop = 0, -1
    for hit in hits:
        at = (hit >> _ID_BITS) - 1
        if at > stop:
            start = block.data.rfind(b"\n", 0, at) + 1
            stop = _stop(block.data, at, block.end)
        marks[start] = marks.get(start, 0) | 1 << (hit & _ID_MASK)


def _within(hits: Sequence[int], start: int, end: int) -> Sequence[int]:
    """The hits that end in a part of a block."""
    return hits[bisect_left(hits, start + 1 << _ID_BITS) : bisect_left(hits, end + 2 << _ID_BITS)]
