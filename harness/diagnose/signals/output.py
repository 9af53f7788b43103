"""Output that floods: bytes a step, against the run's own beginning."""

from collections.abc import Collection

from harness.diagnose.signals.history import OUTPUT
from harness.diagnose.signals.steps import Steps
from harness.diagnose.signals.wording import at_first, cite, figures, size, verb, who
from harness.model.diagnosis import Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind


def flood(steps: Steps, dragging: Collection[int]) -> Finding | None:
    """Ranks that write ten times what they wrote, more than 64 KiB a step, while steps became slower.

    A rank for which everybody waits (`dragging`) makes steps slower, whatever else made them quicker.
    """
    if not steps.has(OUTPUT):
        return None
    limits, written, slower = steps.limits, steps.both(OUTPUT), steps.job("step_time_s")
    ranks = tuple(
        r
        for r in steps.ranks
        if written[r].now > max(limits.flood_growth * written[r].early, limits.flood_bytes)
    )
    drags = bool(ranks) and set(ranks) <= set(dragging)
    if not ranks or not (drags or (slower.growth > limits.slower and not _computing_explains(steps))):
        return None
    some = ranks if 2 * len(ranks) < len(steps.ranks) else ()
    worst = max(ranks, key=lambda r: written[r].now)
    row = steps.matrix(OUTPUT)[steps.ranks.index(worst)]
    return Finding(
        source="signal",
        kind=Kind.LOG_FLOOD,
        confidence=Confidence.CERTAIN if drags else Confidence.POSSIBLE if some else Confidence.LIKELY,
        summary=(
            f"{who(ranks)} {verb(ranks, 'writes', 'write')} {size(written[worst].now)} of output a step, "
            f"{size(written[worst].early)} at first; {at_first('steps take', slower)}"
        ),
        culprits=some if drags else (),
        suspects=() if drags else some,
        victims=tuple(r for r in steps.ranks if r not in some),
        where=Where(step=steps.since(row, limits.flood_bytes), site="logging"),
        evidence=(
            *(
                cite(steps, r, f"rank {r}: {figures(steps, 'output a step', written[r], size)}")
                for r in (some or ranks)[:3]
            ),
            cite(steps, worst, figures(steps, "steps of the median rank take", slower)),
        ),
        chain=("a message is written again and again", "-> the training thread waits for its output"),
    )


def _computing_explains(steps: Steps) -> bool:
    """Whether steps became longer since all ranks compute longer."""
    if not steps.has("compute_s"):
        return False
    took, computing = steps.job("step_time_s"), steps.job("compute_s")
    return computing.now - computing.early > (took.now - took.early) / 2
