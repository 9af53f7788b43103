"""What grew between two sides, rank by rank, and what of that is noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.traces.breakdown import BUCKETS, WAITING, Breakdown
from harness.diagnose.traces.intervals import Ints
from harness.diagnose.traces.sides import Side

SHARE_OF_STEP = 0.02
"""Less than this share of the old step is jitter (DIAGNOSIS, thresholds: 1 to 2 % is normal)."""
DEVIATIONS = 3.0
"""And less than this many robust standard deviations of a part from step to step."""
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Growth:
    """Medians over steps, in seconds. `noise_s` is what could be chance."""

    then_s: float
    now_s: float
    noise_s: float

    @property
    def by_s(self) -> float:
        """How much longer it takes now."""
        return self.now_s - self.then_s

    @property
    def is_real(self) -> bool:
        """Whether it grew by more than noise."""
        return self.by_s > self.noise_s


@dataclass(frozen=True)
class RankGrowth:
    """One rank: its step, what of that is its own work, and each part. `then` is the old trace.

    That is another rank's only where no rank has a trace on both sides.
    """

    rank: int
    now: Breakdown
    then: Breakdown
    step: Growth
    own: Growth
    parts: Mapping[str, Growth]

    @property
    def is_own(self) -> bool:
        """Whether both traces are of this rank."""
        return self.rank == self.then.rank

    @property
    def waits_more_s(self) -> float:
        """By how much its waiting for other ranks grew."""
        return sum(self.parts[name].by_s for name in WAITING)


def growths(then: Side, now: Side) -> tuple[RankGrowth, ...]:
    """One entry a rank that has a trace on both sides: ranks of one job may differ in what they do.

    If there is none, every new trace is compared with the middle old one.
    """
    common = [rank for rank in now.breakdowns if rank in then.breakdowns]
    if common:
        return tuple(_growth(then.breakdowns[rank], now.breakdowns[rank]) for rank in common)
    middle = _middle(list(then.breakdowns.values()))
    return tuple(_growth(middle, new) for new in now.breakdowns.values())


def _middle(breakdowns: Sequence[Breakdown]) -> Breakdown:
    ordered = sorted(breakdowns, key=lambda b: float(np.median(b.own_ns)))
    return ordered[(len(ordered) - 1) // 2]


def _growth(then: Breakdown, now: Breakdown) -> RankGrowth:
    step_s = float(np.median(then.step_ns)) / 1e9
    return RankGrowth(
        rank=now.rank,
        now=now,
        then=then,
        step=_compare(then.step_ns, now.step_ns, step_s),
        own=_compare(then.own_ns, now.own_ns, step_s),
        parts={name: _compare(then.parts[name], now.parts[name], step_s) for name in BUCKETS},
    )


def _compare(then: Ints, now: Ints, step_s: float) -> Growth:
    noise = max(SHARE_OF_STEP * step_s, DEVIATIONS * max(_deviation(then), _deviation(now)) / 1e9)
    return Growth(float(np.median(then)) / 1e9, float(np.median(now)) / 1e9, noise)


def _deviation(values: Ints) -> float:
    """A standard deviation that single odd steps do not move, in the unit of `values`."""
    return _MAD_TO_DEVIATION * float(np.median(np.abs(values - np.median(values))))


def overall(found: Sequence[RankGrowth]) -> tuple[Growth, dict[str, Growth]]:
    """The step and its parts on the middle rank: medians over ranks."""
    return _median([g.step for g in found]), {
        name: _median([g.parts[name] for g in found]) for name in BUCKETS
    }


def _median(found: Sequence[Growth]) -> Growth:
    return Growth(
        float(np.median([g.then_s for g in found])),
        float(np.median([g.now_s for g in found])),
        float(np.median([g.noise_s for g in found])),
    )
