"""Few ranks that grew apart from the others since an earlier run, and whether that convicts them."""

from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.columns import Floats
from harness.diagnose.signals.medians import middle
from harness.diagnose.signals.side import GREW, WAIT, Side

SPREADS = 3.0
"""Less than so many robust standard deviations of the old run's own stretches is noise."""

APART = 1.2
"""A rank that grew by so much more than the median rank is one of few."""

SAME = 1.05
"""If the median rank computes so many times longer, or shorter, it is no longer the same work."""

FEW = 4
"""At most one rank in so many is named."""


@dataclass(frozen=True)
class Apart:
    """Ranks whose `part` grew apart. `convicts`: nothing but they themselves explains it."""

    part: str
    ranks: tuple[int, ...]
    convicts: bool


def same_ranks(then: Side, now: Side) -> bool:
    """Whether both runs recorded the same ranks."""
    return then.ranks.keys() == now.ranks.keys()


def noise(then: Side, now: Side, part: str) -> float:
    """Seconds by which a part may differ between two runs of the same job."""
    return max(GREW * max(then.step_s, now.step_s), SPREADS * then.spread.get(part, 0.0))


def grew_apart(then: Side, now: Side, part: str) -> Apart | None:
    """The ranks that drag by this part now and did not then, if they are fewer than half."""
    if len(now.ranks) < 3 or not same_ranks(then, now) or not (then.knows(part) and now.knows(part)):
        return None
    growth = {r: now.of(r, part) - then.of(r, part) for r in now.ranks}
    usual = middle(_array(growth))
    least = noise(then, now, part)
    late = tuple(
        r for r in sorted(now.ranks) if growth[r] - usual > least and outgrew(then, now, part, r, usual)
    )
    if not late or 2 * len(late) >= len(now.ranks):
        return None
    if then.knows(WAIT) and now.knows(WAIT) and not all(_waits_least(now, part, r) for r in late):
        return None
    return Apart(part, late, convicts(then, now, part, late))


def outgrew(then: Side, now: Side, part: str, rank: int, usual: float = 0.0) -> bool:
    """Whether a rank grew against its own past by more than the others did, in seconds and as a multiple."""
    before, after = then.of(rank, part), now.of(rank, part)
    ratios = {r: now.of(r, part) / then.of(r, part) for r in now.ranks if then.of(r, part) > 0}
    alike = middle(_array(ratios))
    factor = 1.0 if np.isnan(alike) else max(1.0, alike)
    return bool(
        after > APART * (before + max(usual, 0.0))
        and after > APART * factor * before
        and excess(now, part, rank) > GREW * now.step_s
        and _always_late(now, part, rank)
    )


def convicts(then: Side, now: Side, part: str, ranks: tuple[int, ...]) -> bool:
    """Whether ranks that outgrew the others are few, waited for, and in a job that is otherwise as it was."""
    return (
        len(ranks) <= max(1, len(now.ranks) // FEW)
        and then.knows(WAIT)
        and all(_waits_least(now, part, r) for r in ranks)
        and _same_work(then, now)
    )


def excess(side: Side, part: str, rank: int) -> float:
    """Seconds by which a rank is above the median rank."""
    return side.of(rank, part) - side.typical.get(part, np.nan)


def _waits_least(now: Side, part: str, rank: int) -> bool:
    """Who is waited for waits less himself."""
    typical = now.typical.get(WAIT, np.nan)
    return bool(now.of(rank, WAIT) < typical - excess(now, part, rank) / 2)


def _always_late(now: Side, part: str, rank: int) -> bool:
    """Whether the rank is above the median one in nearly all stretches: a wandering load is nobody's."""
    values = now.parts[part]
    limit = 1 + (APART - 1) / 2
    typical = np.array([middle(column) for column in values.T])
    late = values[now.steps.ranks.index(rank)] > limit * typical
    return bool(late.mean() >= now.steps.limits.always_late)


def _same_work(then: Side, now: Side) -> bool:
    """Another layout or another model changes what ranks compute, and how evenly."""
    before, after = then.typical.get("compute_s", np.nan), now.typical.get("compute_s", np.nan)
    # What was not recorded cannot have changed visibly: the other conditions have to do.
    return bool(np.isnan(before) or np.isnan(after) or before / SAME <= after <= before * SAME)


def _array(values: dict[int, float]) -> Floats:
    return np.array(list(values.values()), dtype=np.float64)
