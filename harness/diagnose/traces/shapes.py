"""Whether kernels got slower, or others run: their names and counts, then and now."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.traces.breakdown import Work
from harness.diagnose.traces.words import grown

SAME_CALLS = 0.02
"""Counts that differ by less are the same work; a step more or less at the edge of a trace is not more."""
EVEN = 0.1
"""Kernels whose times grew by ratios within this of each other were slowed by one cause: the clock."""
ENOUGH = 0.9
"""Share of the matrix time that must have grown evenly."""
MAX_SHOWN = 3
WORTH_NAMING = 0.1
"""Share of the largest growth below which a kernel is not named."""


@dataclass(frozen=True)
class KernelChange:
    """One kernel or operation: runs a step, and seconds a step, then and now."""

    name: str
    then_calls: float
    now_calls: float
    then_s: float
    now_s: float

    @property
    def by_s(self) -> float:
        """How much more time it takes in a step."""
        return self.now_s - self.then_s


def changes(then: Work, now: Work, matrix: bool | None = None) -> list[KernelChange]:
    """Every kernel that ran on a side, the one that grew most first. `matrix` picks one class."""
    found = []
    for name in {**then.by_name, **now.by_name}:
        old = then.by_name.get(name, _NEVER)
        new = now.by_name.get(name, _NEVER)
        if matrix is None or matrix is (old[2] or new[2]):
            found.append(KernelChange(name, old[0], new[0], old[1], new[1]))
    return sorted(found, key=lambda change: -change.by_s)


_NEVER = (0.0, 0.0, False)


def same_calls(then: float, now: float) -> bool:
    """Whether two counts a step are the same work."""
    return abs(now - then) <= SAME_CALLS * max(then, now)


def slowed_evenly(then: Work, now: Work) -> float | None:
    """By what factor all matrix kernels slowed at equal counts, as with a lower clock; else None."""
    found = changes(then, now, matrix=True)
    ran = [c for c in found if c.then_s > 0 and c.now_s > 0]
    if len(ran) < len(found) or not ran or not all(same_calls(c.then_calls, c.now_calls) for c in ran):
        return None
    ratios = np.array([c.now_s / c.then_s for c in ran])
    weights = np.array([c.then_s for c in ran])
    middle = float(np.average(ratios, weights=weights))
    even = weights[np.abs(ratios - middle) <= EVEN * middle].sum()
    return middle if middle > 1 and even >= ENOUGH * weights.sum() else None


def grown_names(found: Sequence[KernelChange]) -> str:
    """The kernels that grew most, in words."""
    shown = [c for c in found[:MAX_SHOWN] if c.by_s > 0 and c.by_s >= WORTH_NAMING * found[0].by_s]
    return "; ".join(_words(change) for change in shown)


def _words(change: KernelChange) -> str:
    name = change.name if len(change.name) <= 60 else f"{change.name[:57]}..."
    runs = ""
    if not same_calls(change.then_calls, change.now_calls):
        runs = f", {change.then_calls:.4g} -> {change.now_calls:.4g} runs a step"
    return f"{name} {grown(change.by_s)} a step{runs}"
