"""Slower without a rank that is known to drag: all wait for data, some do, or all wait for one another."""

from collections.abc import Sequence

import numpy as np

from harness.diagnose.signals.dragging import Dragging
from harness.diagnose.signals.history import LONGEST_OWN, OWN
from harness.diagnose.signals.medians import middle
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


def slow_exchange(steps: Steps, world_size: int) -> Finding | None:
    """Own work is unchanged, and every rank waits longer in collectives than it did: the network.

    Not while a rank's records are missing, nor where somebody, now this one, now that, is later than it was:
    then they wait for ranks, and not for messages.
    """
    if not steps.has("comm_wait_s", "compute_s", "step_time_s", LONGEST_OWN) or len(steps.ranks) < world_size:
        return None
    waits, took, computing = steps.both("comm_wait_s"), steps.job("step_time_s"), steps.job("compute_s")
    typical = steps.job("comm_wait_s")
    everywhere = all(b.growth > steps.limits.comm_growth for b in waits.values())
    grown = typical.now - typical.early
    if not (
        everywhere
        and grown > steps.limits.exposed_wait * took.now
        and computing.growth < UNCHANGED
        and steps.job(OWN).growth < UNCHANGED
        and _latest_grew_s(steps) < grown / 3
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
        ruled_out=(RuledOut(Kind.STRAGGLER, "the latest rank of a step is no later than it was"),),
        chain=("messages take longer", "-> every rank's exposed wait grew"),
    )


def _latest_grew_s(steps: Steps) -> float:
    """By how much the latest rank of a step is later than it was, seconds behind the median one."""
    assert steps.windows is not None
    longest = np.nan_to_num(steps.matrix(LONGEST_OWN), nan=-np.inf).max(axis=0)
    late = longest - steps.typical(OWN)
    early, now = (np.nan_to_num(middle(late[w.cells])) for w in steps.windows)
    return float(now - early)


def slower(steps: Steps, dragging: Sequence[Dragging]) -> Finding | None:
    """Steps became longer, and nothing in the records says why."""
    took, pace = ((steps.job(f) if steps.has(f) else None) for f in ("step_time_s", "tps"))
    if took is not None and took.growth > steps.limits.slower:
        figure = at_first("steps take", took)
    elif took is None and pace is not None and pace.growth < 1 / steps.limits.slower:
        figure = f"{pace.now:.0f} tokens a second and rank, {pace.early:.0f} at first"
    else:
        return None
    grown = [
        at_first(name, both)
        for field, name in (("compute_s", "computing takes"), ("comm_wait_s", "waiting for others"))
        if steps.has(field) and (both := steps.job(field)).growth > steps.limits.slower
    ]
    late = [d.rank for d in dragging]
    drags = f"; {who(late)} {verb(late, 'is', 'are')} at work while the others wait" if late else ""
    return Finding(
        source="signal",
        kind=Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary=f"{figure}; the records do not say why{''.join(f'; {g}' for g in grown)}{drags}",
        evidence=(cite(steps, steps.ranks[0], f"rank {steps.ranks[0]}: {figure}"),),
    )
