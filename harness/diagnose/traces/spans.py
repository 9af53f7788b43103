"""Growing columns of spans: 32 bytes an event, where a decoded event has some two thousand."""

from array import array
from dataclasses import dataclass, field

import numpy as np

from harness.diagnose.traces.intervals import Bools, Ints


@dataclass(frozen=True)
class Columns:
    """Spans as arrays of equal length. Nanoseconds; what `label` means depends on whose spans these are."""

    begin: Ints
    end: Ints
    thread: Ints
    label: Ints

    def __len__(self) -> int:
        return len(self.begin)

    def where(self, mask: "Bools | Ints") -> "Columns":
        """Those that a mask or indices pick."""
        return Columns(self.begin[mask], self.end[mask], self.thread[mask], self.label[mask])


@dataclass
class Spans:
    """What is appended to while a trace is read: begin, end, thread and label in turn."""

    rows: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, begin: int, end: int, thread: int = 0, label: int = 0) -> None:
        """Append one."""
        self.rows.extend((begin, end, thread, label))

    def columns(self) -> Columns:
        """A copy of what was appended so far."""
        table = np.array(self.rows, np.int64).reshape(-1, 4)
        return Columns(*(np.ascontiguousarray(column) for column in table.T))

    def clear(self) -> None:
        """Forget all, and give the memory back."""
        self.rows = array("q")

    def __len__(self) -> int:
        return len(self.rows) // 4


@dataclass
class Numbers:
    """Names to small numbers and back, in the order in which they came."""

    of: dict[object, int] = field(default_factory=dict)

    def number(self, name: object) -> int:
        """The number of a name, a new one if it was never seen."""
        return self.of.setdefault(name, len(self.of))

    @property
    def names(self) -> tuple[object, ...]:
        """All names; a name's place is its number."""
        return tuple(self.of)
