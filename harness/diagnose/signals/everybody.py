"""Slower without a rank that is known to drag: all wait for data, some do, or all wait for one another."""


from harness.diagnose.signals.steps import Steps
from harness.diagnose.signals.wording import at_first, cite, figures, share, verb, who
from harness.model.diagnosis import RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

ALWAYS_STARVED = 0.2
"""A run that spends so much of its steps waiting for data was starved from its start."""

UNCHANGED = 1.1


def all_starved(steps: Steps) -> Finding | None:
    """Most ranks wait for data for more than a twentieth of the step, twice what they waited at first."""
    if not steps.has("data_wait_s", "step_time_s"):
        return None
    waits, took = steps.both("data_wait_s"), steps.job("step_time_s")
    typical = steps.job("data_wait_s")
    part = typical.now / took.now if took.now > 0 else 0.0
    grew = typical.growth > steps.limits.data_wait_growth
    if not part > (steps.limits.data_wait if grew else ALWAYS_STARVED):
        return None
    row = steps.typical("data_wait_s")
    middle = (typical.early + typical.now) / 2
    return Finding(
        source="signal",
        kind=Kind.DATA_STARVED,
        confidence=Confidence.CERTAIN if grew else Confidence.LIKELY,
        summary=(
            f"all ranks wait for data, {share(part)} of each step: "
            f"{at_first('a batch takes', typical)}; "
            f"{at_first('steps take', took)}"
        ),
        victims=steps.ranks,
        where=Where(
            step=steps.since(row, middle) if grew else None,
            site="dataloader",
            cost=part,
        ),
        evidence=tuple(
            cite(steps, r, f"rank {r}: {figures(steps, 'data_wait_s', waits[r])}") for r in steps.ranks[:3]
        ),
        ruled_out=(RuledOut(Kind.STRAGGLER, "all ranks wait alike"),),
        chain=("the source of the data became slower", "-> every rank waits for its next batch"),
    )


def few_starved(steps: Steps) -> Finding | None:
    """Few ranks whose batches became late, in records without the wait for others."""
    if not steps.has("data_wait_s", "step_time_s") or steps.has("comm_wait_s") or len(steps.ranks) < 3:
        return None
    waits, took = steps.both("data_wait_s"), steps.job("step_time_s")
    usual = steps.job("data_wait_s").now
    ranks = tuple(
        r
        for r, b in waits.items()
        if b.now > usual + steps.limits.data_wait * took.now and b.growth > steps.limits.data_wait_growth
    )
    if not ranks or 2 * len(ranks) >= len(steps.ranks):
        return None
    worst = max(ranks, key=lambda r: waits[r].now)
    return Finding(
        source="signal",
        kind=Kind.DATA_STARVED,
        confidence=Confidence.LIKELY,
        summary=(
            f"{who(ranks)} {verb(ranks, 'waits', 'wait')} for data, "
            f"{share(waits[worst].now / took.now)} of each step: "
            f"{at_first('a batch takes', waits[worst])}"
        ),
        culprits=ranks,
        victims=tuple(r for r in steps.ranks if r not in ranks),
        where=Where(site="dataloader", cost=waits[worst].now / took.now),
        evidence=tuple(
            cite(steps, r, f"rank {r}: {figures(steps, 'data_wait_s', waits[r])}") for r in ranks[:3]
        ),
        chain=(f"{who(ranks)}: batches come late", "-> all others wait in the step's collectives"),
    )


def slow_exchange(steps: Steps) -> Finding | None:
    """Computing is unchanged, and every rank waits longer in collectives than it did: the network."""
    if not steps.has("comm_wait_s", "compute_s", "step_time_s"):
        return None
    waits, took, computing = steps.both("comm_wait_s"), steps.job("step_time_s"), steps.job("compute_s")
    typical = steps.job("comm_wait_s")
    everywhere = all(b.growth > steps.limits.comm_growth for b in waits.values())
    grown = typical.now - typical.early
    if not (
        everywhere
        and grown > steps.limits.exposed_wait * took.now
        and computing.growth < UNCHANGED
        and took.growth > steps.limits.slower
    ):
        return None
    return Finding(
        source="signal",
        kind=Kind.COMM_SLOW,
        confidence=Confidence.LIKELY,
        summary=(
            f"all ranks wait longer for one another: {at_first('it takes', typical)}, while "
            f"{at_first('computing takes', computing)}"
        ),
        victims=steps.ranks,
        where=Where(cost=grown / took.now),
        evidence=tuple(
            cite(steps, r, f"rank {r}: {figures(steps, 'comm_wait_s', waits[r])}") for r in steps.ranks[:3]
        ),
        ruled_out=(RuledOut(Kind.STRAGGLER, "no rank waits less than the others"),),
        chain=("messages take longer", "-> every rank's exposed wait grew"),
    )
