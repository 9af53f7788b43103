"""One run over a text file for many patterns at once, and the lines that they match."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from harness.diagnose.texts.blocks import Block, Blocks, lent_memory
from harness.diagnose.texts.dress import Dress
from harness.diagnose.texts.ends import LineEnds, line_end
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import Line, line_of
from harness.diagnose.texts.patterns import (
    BIT_OF,
    HEAD,
    HEAD_LINES,
    ID_BITS,
    ID_MASK,
    SAMPLE,
    SAMPLE_LINES,
    TAIL,
    TAIL_LINES,
    Database,
    Pattern,
    database_of,
)


class Scanner:
    """Patterns that are looked for together. Compiled by each process that uses them, once."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self.patterns = tuple(patterns)

    def ready(self) -> None:
        """Compile now, for processes that will be forked as well. Raises: hyperscan.error."""
        database_of(self.patterns).ready()

    def lines(self, file: TextFile) -> "Lines":
        """The lines of a file that a pattern matches, or that stand at its begin, its end, or a block's.

        Raises: hyperscan.error, for a pattern that is none.
        """
        return Lines(Blocks(file.path), database_of(self.patterns), file.dress)


class Lines:
    """Yields lines in order, and each next line while `follow` is set; a generator of one pass.

    Of a line with carriage returns inside, the parts that match come, one by one under the same number; the
    last one if none does. Patterns see lines as they lie; those that come have put off their `dress`. Never
    raises for what is in a file: `complaints` says, once all was read, what was wrong with it, without its
    name.
    """

    def __init__(self, blocks: Blocks, database: Database, dress: Dress | None = None) -> None:
        self._blocks = blocks
        self._database = database
        self._dress = dress
        self.follow = False

    @property
    def complaints(self) -> Sequence[str]:
        """Phrases, complete when the last line has come."""
        return self._blocks.complaints

    def __iter__(self) -> Iterator[Line]:
        with lent_memory() as self._blocks.memory:
            if self._dress is None:
                yield from self._lines()
                return
            for line in self._lines():
                line.text = self._dress.off(line.text)
                yield line

    def _lines(self) -> Iterator[Line]:
        number = 1
        ends = LineEnds()
        for block, last in _with_last(self._blocks):
            hits = self._database.scan(memoryview(block.data)[: block.end])
            ends.of(block)
            marks = _marks(block, max(HEAD_LINES + 1 - number, 0), last=last)
            _add_hits(marks, block, hits)
            yield from self._of_block(number, block, ends, marks, hits)
            # The last line of a block may go on in the next one.
            number += ends.before(block.end)

    def _of_block(
        self, number: int, block: Block, ends: LineEnds, marks: dict[int, int], hits: Sequence[int]
    ) -> Iterator[Line]:
        """`number`: of the block's first line. `marks`: of each wanted line its bits, by where it begins."""
        data, end = block.data, block.end
        wanted = iter(sorted(marks))
        marked = next(wanted, end)
        start = next_start = 0
        at = number - 1
        while True:
            start = next_start if self.follow else marked
            if start >= end:
                return
            if start == marked:
                marked = next(wanted, end)
            stop = line_end(data, start, end)
            whole = block.whole or stop < end
            raw = data[start:stop].rstrip(b"\r")
            mask = marks.get(start, 0)
            at = at + 1 if start == next_start else number + ends.before(start)
            next_start = stop + 1
            if b"\r" in raw:
                yield from self._parts(at, raw, start, mask, hits, whole=whole)
            else:
                yield line_of(at, raw, self._database.tags(mask), whole=whole)

    def _parts(
        self, number: int, raw: bytearray, start: int, mask: int, hits: Sequence[int], *, whole: bool
    ) -> Iterator[Line]:
        """A progress bar puts many lines into one, with carriage returns between."""
        here = mask & sum(BIT_OF.values())
        matched = mask != here
        found = iter(_within(hits, start, start + len(raw)))
        hit = next(found, None)
        parts = raw.split(b"\r")
        last = len(parts) - 1
        for index, part in enumerate(parts):
            own = 0
            while hit is not None and (hit >> ID_BITS) - 1 <= start + len(part):
                own |= 1 << (hit & ID_MASK)
                hit = next(found, None)
            start += len(part) + 1
            if own or self.follow or (index == last and not matched):
                tags = self._database.tags(own | here)
                yield line_of(number, part, tags, whole=whole or index != last)


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


def _marks(block: Block, head: int, *, last: bool) -> dict[int, int]:
    """Lines that are wanted for where they stand, by where they begin, each with its bits."""
    marks: dict[int, int] = {}
    start = 0
    for index in range(max(SAMPLE_LINES, head)):
        if start >= block.end:
            break
        marks[start] = (BIT_OF[SAMPLE] if index < SAMPLE_LINES else 0) | (BIT_OF[HEAD] if index < head else 0)
        start = line_end(block.data, start, block.end) + 1
    start = block.end
    for _ in range(TAIL_LINES if last else 0):
        if not start:
            break
        start = block.data.rfind(b"\n", 0, start - 1) + 1
        marks[start] = marks.get(start, 0) | BIT_OF[TAIL]
    return marks


def _add_hits(marks: dict[int, int], block: Block, hits: Sequence[int]) -> None:
    start, stop = 0, -1
    for hit in hits:
        at = (hit >> ID_BITS) - 1
        if at > stop:
            start = block.data.rfind(b"\n", 0, at) + 1
            stop = line_end(block.data, at, block.end)
        marks[start] = marks.get(start, 0) | 1 << (hit & ID_MASK)


def _within(hits: Sequence[int], start: int, end: int) -> Sequence[int]:
    """The hits that end in a part of a block."""
    return hits[bisect_left(hits, start + 1 << ID_BITS) : bisect_left(hits, end + 2 << ID_BITS)]
