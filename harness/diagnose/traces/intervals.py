"""Sets of moments as sorted, disjoint intervals: int64 nanoseconds, so that every sum is exact."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Cover:
    """A union of intervals [begin, end), sorted and disjoint."""

    begin: Ints
    end: Ints

    def length(self, begin: Ints, end: Ints) -> Ints:
        """How much of each window [begin, end) is covered."""
        return self._until(end) - self._until(begin)

    def holds(self, moments: Ints) -> Bools:
        """Which moments are covered."""
        at = np.searchsorted(self.begin, moments, side="right") - 1
        if not len(self.begin):
            return np.zeros(len(moments), np.bool_)
        return (at >= 0) & (moments < self.end[np.maximum(at, 0)])

    def _until(self, moments: Ints) -> Ints:
        """The covered length before each moment."""
        if not len(self.begin):
            return np.zeros(len(moments), np.int64)
        total = np.concatenate(([0], np.cumsum(self.end - self.begin)))
        at = np.searchsorted(self.begin, moments, side="right")
        beyond = np.maximum(self.end[np.maximum(at - 1, 0)] - moments, 0)
        return np.asarray(total[at] - np.where(at > 0, beyond, 0), np.int64)


def cover(begin: Ints, end: Ints) -> Cover:
    """The union of any intervals, in any order; those that end before they begin are left out."""
    real = end > begin
    begin, end = begin[real], end[real]
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order]) if len(end) else end
    first = np.concatenate(([True], begin[1:] > end[:-1])) if len(begin) else np.zeros(0, np.bool_)
    last = np.concatenate((first[1:], [True])) if len(begin) else first
    return Cover(begin[first], end[last])


def both(one: Cover, other: Cover) -> Cover:
    """The union of two covers."""
    return cover(np.concatenate((one.begin, other.begin)), np.concatenate((one.end, other.end)))


@dataclass(frozen=True)
class Innermost:
    """For nested spans of one thread: which is the innermost at a moment. `label` -1: none.

    `label[i]` holds from `since[i]` on.
    """

    since: Ints
    label: Ints

    def at(self, moments: Ints) -> Ints:
        """The label of the innermost span at each moment."""
        if not len(self.since):
            return np.full(len(moments), -1, np.int64)
        index = np.searchsorted(self.since, moments, side="right") - 1
        return np.where(index >= 0, self.label[np.maximum(index, 0)], -1)


def innermost(begin: Ints, end: Ints, label: Ints) -> Innermost:
    """Flatten properly nested spans, as one thread's calls are."""
    order = np.lexsort((-end, begin))
    since: list[int] = []
    labels: list[int] = []
    stack: list[tuple[int, int]] = []

    def close(until: int) -> None:
        while stack and stack[-1][0] <= until:
            ended, _ = stack.pop()
            since.append(ended)
            labels.append(stack[-1][1] if stack else -1)

    for b, e, which in zip(begin[order].tolist(), end[order].tolist(), label[order].tolist(), strict=True):
        close(b)
        since.append(b)
        labels.append(which)
        stack.append((e, which))
    close(int(end.max(initial=0)))
    return Innermost(np.array(since, np.int64), np.array(labels, np.int64))
