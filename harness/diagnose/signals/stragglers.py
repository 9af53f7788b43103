"""Ranks that drag, as findings: how many times slower, since when, what it costs everybody, and in what."""

from harness.diagnose.signals.dragging import Dragging
from harness.diagnose.signals.history import OWN
from harness.diagnose.signals.steps import Steps
from harness.diagnose.signals.wording import at_first, cite, figures, seconds, share, verb, who
from harness.model.diagnosis import Citation, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

PREEMPTED = 3.0
"""So many more involuntary switches a step than its peers have: others take the rank's core."""


def straggler(steps: Steps, found: tuple[Dragging, ...], alike: bool) -> Finding | None:
    """What the few ranks that drag are convicted or suspected of; None if there are none.

    Convicted is one rank that grew against its own past, while nobody was as late before. `alike`: all ranks
    are known to have the same part in the job; several ranks that grew together may otherwise be a stage, or
    the experts, that the model made slower.
    """
    if not found:
        return None
    worst = max(found, key=lambda d: d.excess_s)
    grew = all(d.grew and not d.wanders for d in found)
    sure = grew and (alike or len(found) == 1)
    if worst.part == "data_wait_s":
        return _starved(steps, found, worst, sure, alike)
    ranks = tuple(d.rank for d in found)
    name = "compute_s" if worst.part == "compute_s" else OWN
    mine, typical = steps.both(name)[worst.rank], steps.job(name)
    factor = mine.now / typical.now if typical.now > 0 else None
    took = steps.job("step_time_s")
    cost = worst.excess_s / took.now
    times = f"{factor:.1f} times as long as the median rank, " if factor else ""
    return Finding(
        source="signal",
        kind=Kind.STRAGGLER,
        confidence=_confidence(sure, alike),
        summary=(
            f"{who(ranks)} {_does(steps, worst, ranks)} {times}{seconds(mine.now)} a step against "
            f"{seconds(typical.now)} ({_before(worst, mine.early)}): everybody waits for "
            f"{verb(ranks, 'it', 'them')}, {share(cost)} of each step of {seconds(took.now)}"
        ),
        culprits=ranks if sure else (),
        suspects=() if sure else ranks,
        victims=tuple(r for r in steps.ranks if r not in ranks),
        where=Where(
            step=worst.begun if worst.grew else None, site=_site(steps, worst), factor=factor, cost=cost
        ),
        evidence=_evidence(steps, found, name),
        ruled_out=_ruled_out(steps, worst, sure, grew),
        chain=(
            f"{who(ranks)}: later than the median rank by {seconds(worst.excess_s)} a step",
            f"-> all others wait: {figures(steps, 'steps take', took)}",
        ),
    )


def _does(steps: Steps, worst: Dragging, ranks: tuple[int, ...]) -> str:
    if worst.part == "compute_s":
        return verb(ranks, "computes", "compute")
    if steps.has("compute_s"):
        return f"{verb(ranks, 'needs', 'need')} in host code"
    return f"{verb(ranks, 'works', 'work')} by {verb(ranks, 'itself', 'themselves')}"


def _before(worst: Dragging, early: float) -> str:
    if early != early:
        return "before that not known"
    return f"{seconds(early)} at first" if worst.grew else f"{seconds(early)} at first: no growth of its own"


def _confidence(sure: bool, alike: bool) -> Confidence:
    if not sure:
        return Confidence.POSSIBLE
    return Confidence.CERTAIN if alike else Confidence.LIKELY


def _ruled_out(steps: Steps, worst: Dragging, sure: bool, grew: bool) -> tuple[RuledOut, ...]:
    waits = f"its own wait is short, {seconds(worst.wait.now)}: its peers wait"
    network = RuledOut(Kind.COMM_SLOW, f"{waits} {seconds(steps.job('comm_wait_s').now)}")
    if sure:
        return (network,)
    why = (
        "several ranks at once may be a stage of the model" if grew else "its part in the job may take longer"
    )
    if worst.wanders:
        why = "other ranks were as late before: lateness goes round"
    return (
        network,
        RuledOut(Kind.STRAGGLER, f"not certain: {why}; compare with an earlier run (--baseline)"),
    )


def _starved(steps: Steps, found: tuple[Dragging, ...], worst: Dragging, sure: bool, alike: bool) -> Finding:
    ranks = tuple(d.rank for d in found)
    waits, took = steps.both("data_wait_s"), steps.job("step_time_s")
    part = share(waits[worst.rank].now / took.now)
    return Finding(
        source="signal",
        kind=Kind.DATA_STARVED,
        confidence=_confidence(sure, alike),
        summary=(
            f"{who(ranks)} {verb(ranks, 'waits', 'wait')} for data, {part} of each step, and all others with "
            f"{verb(ranks, 'it', 'them')}: {at_first('a batch takes', waits[worst.rank])}"
        ),
        culprits=ranks if sure else (),
        suspects=() if sure else ranks,
        victims=tuple(r for r in steps.ranks if r not in ranks),
        where=Where(
            step=worst.begun if worst.grew else None, site="dataloader", cost=worst.excess_s / took.now
        ),
        evidence=(
            *(cite(steps, r, f"rank {r}: {figures(steps, 'data_wait_s', waits[r])}") for r in ranks[:3]),
            *_peer(steps, ranks, "data_wait_s"),
        ),
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


def _site(steps: Steps, found: Dragging) -> str | None:
    """Whether it is the rank's work that takes longer, or its host that does not let it run."""
    if not steps.has("compute_s"):
        return None
    if found.part != "compute_s":
        return "host"
    if not steps.has("preemptions"):
        return "compute"
    switches = steps.both("preemptions")
    mine, typical = switches[found.rank], steps.job("preemptions").now
    crowded = mine.now > typical + PREEMPTED and mine.now > 2 * mine.early
    return "host" if crowded else "compute"
