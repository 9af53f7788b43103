"""Growing columns of spans: 28 bytes an event, where a decoded event has some two thousand."""

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
    """What is appended to while a trace is read."""

    begin: "array[int]" = field(default_factory=lambda: array("q"))
    end: "array[int]" = field(default_factory=lambda: array("q"))
    thread: "array[int]" = field(default_factory=lambda: array("i"))
    label: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, begin: int, end: int, thread: int = 0, label: int = 0) -> None:
        """Append one."""
        self.begin.append(begin)
        self.end.append(end)
        self.thread.append(thread)
        self.label.append(label)

    def columns(self) -> Columns:
        """A copy of what was appended so far."""
        return Columns(
            np.array(self.begin, np.int64),
            np.array(self.end, np.int64),
            np.array(self.thread, np.int64),
            np.array(self.label, np.int64),
        )

    def clear(self) -> None:
        """Forget all, and give the memory back."""
        self.begin, self.end, self.thread, self.label = array("q"), array("q"), array("i"), array("q")

    def __len__(self) -> int:
        return len(self.begin)


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
