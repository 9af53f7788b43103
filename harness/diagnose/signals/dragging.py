"""Few ranks that everybody waits for: long on their own, and short in waiting.

Step times do not show it, since a collective makes all ranks equally slow. What does is a rank's own time,
its step without its wait for others: the rank that drags has the longest of its own and waits least.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.columns import Floats, Ints
from harness.diagnose.signals.history import OWN
from harness.diagnose.signals.medians import deviation, middle
from harness.diagnose.signals.steps import Both, Steps, change_point

LEAST_RANKS = 3

GREW = 1.15
"""So much more than its own past, and than its peers grew, is growth; less may be noise."""

ERRORS = 4.0
"""The excess in standard errors of the median that chance does not explain, over hundreds of ranks."""


@dataclass(frozen=True)
class Dragging:
    """One rank that drags. `own`, `wait`: seconds a step; `peers`: the median rank's own time now.

    `part`: where most of its excess is (compute_s, data_wait_s, rest); `begun`: the step since which.
    `grew`: against its own past, and more than its peers' did; a part in the job that always took longer did
    not. `wanders`: before it, others were as late for as long.
    """

    rank: int
    own: Both
    wait: Both
    peers: float
    part: str
    begun: int
    grew: bool
    wanders: bool

    @property
    def excess_s(self) -> float:
        """By how much it is later than the median rank in every step."""
        return self.own.now - self.peers


def dragging(steps: Steps) -> tuple[Dragging, ...]:
    """The ranks that drag, however many; none where records do not tell own time from waiting."""
    if len(steps.ranks) < LEAST_RANKS or not steps.has(OWN, "comm_wait_s"):
        return ()
    assert steps.windows is not None
    own, wait, peers = steps.both(OWN), steps.both("comm_wait_s"), steps.job(OWN)
    typical_wait, took = steps.job("comm_wait_s").now, steps.job("step_time_s").now
    late, noise = _late(steps), _noise(steps)
    found = []
    for rank in steps.ranks:
        excess = own[rank].now - peers.now
        if (
            own[rank].now > _factor(steps, rank) * peers.now
            and excess > steps.limits.straggler_cost * took
            and excess > ERRORS * noise
            and wait[rank].now < typical_wait - excess / 2
            and late[rank] >= steps.limits.always_late
        ):
            found.append(_dragging(steps, rank, own[rank], wait[rank], peers))
    return tuple(found)


def _dragging(steps: Steps, rank: int, own: Both, wait: Both, peers: Both) -> Dragging:
    ratio = steps.matrix(OWN)[steps.ranks.index(rank)] / steps.typical(OWN)
    early, now = own.early / peers.early if peers.early > 0 else np.nan, own.now / peers.now
    # Comparisons with an early figure that is not known are false: no growth is claimed.
    grew = bool(own.growth >= GREW and now >= GREW * early)
    middle = (max(1.0, early if early == early else 1.0) + now) / 2
    change = change_point(ratio, middle)
    return Dragging(
        rank=rank,
        own=own,
        wait=wait,
        peers=peers.now,
        part=_excess_part(steps, rank),
        begun=steps.first + change * steps.width,
        grew=grew,
        wanders=_others_before(steps, rank, change, middle),
    )


def _factor(steps: Steps, rank: int) -> float:
    """How many times its peers' own time is too long; more for a rank that always was a little slower."""
    early = steps.both(OWN)[rank].early / steps.job(OWN).early
    return steps.limits.straggler_factor * (max(1.0, min(early, 1.1)) if early == early else 1.0)


def _late(steps: Steps) -> Mapping[int, float]:
    """In what share of the present window's stretches each rank is clearly later than the median one."""
    assert steps.windows is not None
    cells = steps.windows[1].cells
    limit = 1 + (steps.limits.straggler_factor - 1) / 2
    with np.errstate(invalid="ignore"):
        late = steps.matrix(OWN)[:, cells] > limit * steps.typical(OWN)[cells]
    return dict(zip(steps.ranks, late.mean(axis=1).tolist(), strict=True))


def _noise(steps: Steps) -> float:
    """Standard error of a rank's median own time in the present window, seconds: of the median rank.

    Source: a median's error is 1.25 of a mean's.
    """
    assert steps.windows is not None
    now = steps.matrix(OWN)[:, steps.windows[1].cells]
    known = now[:, ~np.isnan(now).any(axis=0)]
    if known.shape[1] < 2:
        return 0.0
    return float(1.25 * np.median(deviation(known)) / np.sqrt(known.shape[1]))


def _others_before(steps: Steps, rank: int, change: int, limit: float) -> bool:
    """Whether other ranks were as late before, for as long as a window: then lateness goes round."""
    assert steps.windows is not None
    early, now = (w.cells for w in steps.windows)
    length = now.stop - now.start
    ratios: Floats = steps.matrix(OWN) / steps.typical(OWN)
    with np.errstate(invalid="ignore"):
        late = np.delete(ratios[:, early.start : change], steps.ranks.index(rank), axis=0) > limit
    if late.shape[1] < length:
        length = max(1, late.shape[1])
    counts = np.cumsum(np.pad(late, ((0, 0), (1, 0))), axis=1)
    runs: Ints = counts[:, length:] - counts[:, :-length]
    return bool((runs >= steps.limits.always_late * length).any()) if late.shape[1] > 1 else False


def _excess_part(steps: Steps, rank: int) -> str:
    """Which part of its own time is longer than its peers'."""
    mine, theirs = _parts(steps, rank), _typical_parts(steps)
    return max(mine, key=lambda name: mine[name].now - theirs[name].now)


def _parts(steps: Steps, rank: int) -> dict[str, Both]:
    known = {name: steps.both(name)[rank] for name in ("compute_s", "data_wait_s") if steps.has(name)}
    own = steps.both(OWN)[rank]
    sides = [[getattr(b, side) for b in known.values()] for side in ("early", "now")]
    return {**known, "rest": Both(own.early - sum(sides[0]), own.now - sum(sides[1]))}


def _typical_parts(steps: Steps) -> dict[str, Both]:
    known = {name: steps.job(name) for name in ("compute_s", "data_wait_s") if steps.has(name)}
    rest = np.array([_parts(steps, rank)["rest"].now for rank in steps.ranks])
    return {**known, "rest": Both(float("nan"), middle(rest))}
