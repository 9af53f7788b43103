"""Few ranks that everybody waits for: long on their own, short in waiting, and what they do meanwhile.

Step times do not show it, since a collective makes all ranks equally slow. What does is a rank's own time,
its step without its wait for others: the rank that drags has the longest of its own and waits least.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.history import OWN
from harness.diagnose.signals.steps import Both, Steps
from harness.diagnose.signals.wording import at_first, cite, figures, seconds, share, verb, who
from harness.model.diagnosis import Citation, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

PARTS = {"compute_s": "compute", "data_wait_s": "data", "rest": "host"}
"""What own time consists of, and the site that it speaks for; the rest is host code outside of both."""

LEAST_RANKS = 3
PREEMPTED = 3.0
"""So many more involuntary switches a step than its peers have: others take the rank's core."""


@dataclass(frozen=True)
class Dragging:
    """One rank that drags. `own`, `wait`: seconds a step; `peers`: the median rank's own time now.

    `part`: where most of its excess is; `steady`: it was so from the start.
    """

    rank: int
    own: Both
    wait: Both
    peers: float
    part: str
    steady: bool

    @property
    def excess_s(self) -> float:
        """By how much it is later than the median rank in every step."""
        return self.own.now - self.peers


def dragging(steps: Steps) -> tuple[Dragging, ...]:
    """The ranks that drag, if they are fewer than half of at least three."""
    if len(steps.ranks) < LEAST_RANKS or not steps.has(OWN, "comm_wait_s"):
        return ()
    assert steps.windows is not None
    own, wait = steps.both(OWN), steps.both("comm_wait_s")
    peers, peers_wait = steps.job(OWN).now, steps.job("comm_wait_s").now
    late = _late(steps)
    found = []
    for rank in steps.ranks:
        excess = own[rank].now - peers
        if (
            own[rank].now > _factor(steps, rank) * peers
            and excess > steps.limits.straggler_cost * steps.job("step_time_s").now
            and wait[rank].now < peers_wait - excess / 2
            and late[rank] >= steps.limits.always_late
        ):
            part, steady = _excess_part(steps, rank)
            found.append(Dragging(rank, own[rank], wait[rank], peers, part, steady))
    return tuple(found) if 2 * len(found) < len(steps.ranks) else ()


def _factor(steps: Steps, rank: int) -> float:
    """How many times its peers' own time is too long; more for a rank that always was a little slower."""
    early = {r: b.early for r, b in steps.both(OWN).items()}
    usual = float(np.nanmedian(list(early.values())))
    ratio = early[rank] / usual if usual > 0 and not np.isnan(early[rank]) else 1.0
    return steps.limits.straggler_factor * max(1.0, min(ratio, 1.1))


def _late(steps: Steps) -> Mapping[int, float]:
    """In what share of the present window's stretches each rank is clearly later than the median one."""
    assert steps.windows is not None
    cells = steps.windows[1].cells
    limit = 1 + (steps.limits.straggler_factor - 1) / 2
    with np.errstate(invalid="ignore"):
        late = steps.matrix(OWN)[:, cells] > limit * steps.typical(OWN)[cells]
    return dict(zip(steps.ranks, late.mean(axis=1).tolist(), strict=True))


def _excess_part(steps: Steps, rank: int) -> tuple[str, bool]:
    """Which part of its own time is longer than its peers', and whether it was so from the start."""
    mine, theirs = _parts(steps, rank), _typical_parts(steps)
    excess = {name: mine[name].now - theirs[name].now for name in mine}
    part = max(excess, key=lambda name: excess[name])
    before = mine[part].early - theirs[part].early
    steady = bool(before > excess[part] / 2)
    return part, steady


def _parts(steps: Steps, rank: int) -> dict[str, Both]:
    known = {name: steps.both(name)[rank] for name in ("compute_s", "data_wait_s") if steps.has(name)}
    own = steps.both(OWN)[rank]
    sides = [[getattr(b, side) for b in known.values()] for side in ("early", "now")]
    return {**known, "rest": Both(own.early - sum(sides[0]), own.now - sum(sides[1]))}


def _typical_parts(steps: Steps) -> dict[str, Both]:
    known = {name: steps.job(name) for name in ("compute_s", "data_wait_s") if steps.has(name)}
    rest = [_parts(steps, rank)["rest"] for rank in steps.ranks]
    sides = (float(np.nanmedian([getattr(b, side) for b in rest])) for side in ("early", "now"))
    return {**known, "rest": Both(*sides)}


def straggler(steps: Steps, found: tuple[Dragging, ...], alike: bool) -> Finding | None:
    """The ranks that drag, as a finding: how many times slower, and what it costs everybody.

    `alike`: whether all ranks are known to have the same part in the job. A stage of a pipeline may well be
    slower than the others for good: only growth convicts there.
    """
    if not found:
        return None
    worst = max(found, key=lambda d: d.excess_s)
    ranks = tuple(d.rank for d in found)
    if worst.part == "data_wait_s":
        return _starved(steps, ranks, worst)
    sure = not worst.steady or alike
    name = "compute_s" if worst.part == "compute_s" else OWN
    mine, typical = steps.both(name)[worst.rank], steps.job(name)
    factor = mine.now / typical.now if typical.now > 0 else float("inf")
    took = steps.job("step_time_s")
    cost = worst.excess_s / took.now
    site = _site(steps, worst)
    does = "computes" if worst.part == "compute_s" else "needs in host code"
    since = "from the start" if worst.steady else f"{seconds(mine.early)} at first"
    return Finding(
        source="signal",
        kind=Kind.STRAGGLER,
        confidence=_confidence(sure, worst.steady),
        summary=(
            f"{who(ranks)} {does} {factor:.1f} times as long as the median rank, {seconds(mine.now)} a step "
            f"against {seconds(typical.now)} ({since}): everybody waits for it, {share(cost)} of each "
            f"step of {seconds(took.now)}"
        ),
        culprits=ranks if sure else (),
        suspects=() if sure else ranks,
        victims=tuple(r for r in steps.ranks if r not in ranks),
        where=Where(step=None if worst.steady else _since(steps, worst), site=site, factor=factor, cost=cost),
        evidence=_evidence(steps, found, name),
        ruled_out=(
            RuledOut(
                Kind.COMM_SLOW,
                f"its own wait is short: {seconds(worst.wait.now)}, its peers wait "
                f"{seconds(steps.job('comm_wait_s').now)}",
            ),
        ),
        chain=(
            f"{who(ranks)}: late in every step by {seconds(worst.excess_s)}",
            f"-> all others wait: {figures(steps, 'steps take', took)}",
        ),
    )


def _confidence(sure: bool, steady: bool) -> Confidence:
    """Growth against its own past beats a difference from its peers, which a rank's part may explain."""
    if not sure:
        return Confidence.POSSIBLE
    return Confidence.LIKELY if steady else Confidence.CERTAIN


def _starved(steps: Steps, ranks: tuple[int, ...], worst: Dragging) -> Finding:
    waits, took = steps.both("data_wait_s"), steps.job("step_time_s")
    part = share(waits[worst.rank].now / took.now)
    return Finding(
        source="signal",
        kind=Kind.DATA_STARVED,
        confidence=Confidence.LIKELY if worst.steady else Confidence.CERTAIN,
        summary=(
            f"{who(ranks)} {verb(ranks, 'waits', 'wait')} for data, {part} of each step, "
            f"and all others with it: {at_first('a batch takes', waits[worst.rank])}"
        ),
        culprits=ranks,
        victims=tuple(r for r in steps.ranks if r not in ranks),
        where=Where(
            step=None if worst.steady else _since(steps, worst),
            site="dataloader",
            cost=worst.excess_s / took.now,
        ),
        evidence=tuple(
            cite(steps, r, f"rank {r}: {figures(steps, 'data_wait_s', waits[r])}") for r in ranks[:3]
        )
        + _peer(steps, ranks, "data_wait_s"),
        chain=(f"{who(ranks)}: batches come late", "-> all others wait in the step's collectives"),
    )


def _evidence(steps: Steps, found: tuple[Dragging, ...], name: str) -> tuple[Citation, ...]:
    mine = tuple(
        cite(steps, d.rank, f"rank {d.rank}: {figures(steps, field, both)}")
        for d in found[:2]
        for field, both in ((name, steps.both(name)[d.rank]), ("comm_wait_s", d.wait))
    )
    return (*mine, *_peer(steps, tuple(d.rank for d in found), name))


def _peer(steps: Steps, ranks: tuple[int, ...], name: str) -> tuple[Citation, ...]:
    """One of the others, to compare with."""
    peer = next(r for r in steps.ranks if r not in ranks)
    both, wait = steps.both(name)[peer], steps.both("comm_wait_s")[peer]
    return (cite(steps, peer, f"rank {peer}: {name} {seconds(both.now)}, comm_wait_s {seconds(wait.now)}"),)


def _site(steps: Steps, found: Dragging) -> str:
    """Whether it is the rank's work that takes longer, or its host that does not let it run."""
    if found.part != "compute_s":
        return "host"
    if not steps.has("preemptions"):
        return "compute"
    switches = steps.both("preemptions")
    mine, typical = switches[found.rank], steps.job("preemptions").now
    crowded = mine.now > typical + PREEMPTED and mine.now > 2 * mine.early
    return "host" if crowded else "compute"


def _since(steps: Steps, found: Dragging) -> int:
    """The step from which on the rank is closer to how it is now than to how it began."""
    values = steps.matrix(OWN)[steps.ranks.index(found.rank)]
    usual = steps.typical(OWN)
    begun = found.own.early if not np.isnan(found.own.early) else found.peers
    middle = 1 + ((found.own.now / found.peers) - max(1.0, begun / found.peers)) / 2
    return steps.since(values / usual, middle)
