"""Where lines end in blocks, and how many do: a file is as fast to number as it is to read."""

import numpy as np

from harness.diagnose.texts.blocks import Block

_LINE_END = ord("\n")


class LineEnds:
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


def line_end(data: bytearray, start: int, end: int) -> int:
    """Where the line that begins at `start` ends, at `end` at last."""
    found = data.find(b"\n", start, end)
    return end if found < 0 else found
