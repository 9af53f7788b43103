"""Which part decides, on few ranks or on all. Nobody is accused for waiting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.traces.breakdown import BUCKETS, WAITING
from harness.diagnose.traces.growth import SHARE_OF_STEP, Growth, RankGrowth, overall

EXPLAINS = 0.5
"""The work of few ranks explains slower steps if it grew by at least this share of what the step grew."""


@dataclass(frozen=True)
class Decision:
    """What grew. `bucket` is None where nothing grew, or nothing by more than noise.

    `late`: the few ranks whose own work grew while the others wait for them; () where all are alike.
    `slower`: whether the step takes longer at all.
    """

    bucket: str | None
    late: tuple[int, ...]
    slower: bool
    step: Growth
    parts: Mapping[str, Growth]


def decide(found: Sequence[RankGrowth]) -> Decision:
    """Few ranks or all, first; then the part that grew most beyond its noise."""
    step, parts = overall(found)
    slower = step.by_s > SHARE_OF_STEP * step.then_s
    if not slower:
        return Decision(None, (), False, step, parts)
    late = _late(found, step)
    if late:
        # Waiting is no work: of a late rank only what it does itself can be the cause.
        few = [g for g in found if g.rank in late]
        return Decision(_most([own for own in BUCKETS if own not in WAITING], few), late, True, step, parts)
    return Decision(_most(BUCKETS, found), (), True, step, parts)


def _late(found: Sequence[RankGrowth], step: Growth) -> tuple[int, ...]:
    """Ranks that hold up the others: their own work grew, and everybody else waits more than they do."""
    late = [g for g in found if g.is_own and g.own.is_real and g.own.by_s >= EXPLAINS * step.by_s]
    if not late or 2 * len(late) > len(found) or len(late) == len(found):
        return ()
    others = [g for g in found if g not in late]
    least = min(g.waits_more_s for g in others)
    if any(g.waits_more_s >= least for g in late) or least < EXPLAINS * step.by_s:
        return ()
    return tuple(g.rank for g in late)


def _most(names: Sequence[str], found: Sequence[RankGrowth]) -> str | None:
    """The part that grew most in the middle of these ranks, and beyond its noise on at least half of them."""
    real = [n for n in names if 2 * sum(g.parts[n].is_real for g in found) >= len(found)]
    return max(real, key=lambda n: float(np.median([g.parts[n].by_s for g in found])), default=None)
