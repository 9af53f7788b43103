"""Step records alone: who stopped while others went on, and what can be said where nobody is behind."""

import numpy as np

from harness.diagnose.signals.history import ENDS
from harness.diagnose.signals.steps import Steps
from harness.diagnose.signals.wording import seconds, verb, who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

RECENT_S = 24 * 3600.0
"""Records whose last step is no older may be of a job that hangs right now."""


def standing(steps: Steps, now: float) -> Finding | None:
    """Ranks that stopped while others went on; else whether the job may hang, by the age of its last step.

    `now`: unix seconds. A rank is behind if others ended later steps and it was silent meanwhile for three of
    its median steps and 90 s (DIAGNOSIS, thresholds). Where all stand at one step, records of the last day
    are of a job that hangs or has ended, which they cannot tell apart; older ones of a job that is over.
    """
    if not steps.histories:
        return None
    return behind(steps) or _all_at_one_step(steps, now)


def _usual_s(steps: Steps) -> float:
    return float(np.nanmedian(steps.matrix("step_time_s"))) if steps.has("step_time_s") else float("nan")


def _limit_s(steps: Steps) -> float:
    return float(np.nanmax([steps.limits.hang_steps * _usual_s(steps), steps.limits.hang_s]))


def behind(steps: Steps) -> Finding | None:
    """Ranks that made no step any more while others did."""
    if not steps.histories:
        return None
    ahead = max(int(h.steps[-1]) for h in steps.histories)
    went_on = {h.rank: _went_on_s(steps, int(h.steps[-1])) for h in steps.histories if h.steps[-1] < ahead}
    ranks = tuple(r for r, s in went_on.items() if s > _limit_s(steps))
    if not ranks:
        return None
    stopped = [steps.history(rank) for rank in ranks]
    last = int(max(h.steps[-1] for h in stopped))
    few = 2 * len(stopped) < len(steps.histories)
    return Finding(
        source="signal",
        kind=Kind.RANK_STALLED if few else Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"{who(ranks)} {verb(ranks, 'has', 'have')} completed no step after step {last}; others went on "
            f"for {seconds(max(went_on[r] for r in ranks))} and reached step {ahead}"
        ),
        suspects=ranks if few else (),
        victims=tuple(r for r in steps.ranks if r not in ranks),
        where=Where(step=last + 1),
        evidence=tuple(
            Citation(
                "signal", f"rank {h.rank}: its last record is of step {h.steps[-1]}", h.file, rank=h.rank
            )
            for h in stopped[:3]
        ),
    )


def _went_on_s(steps: Steps, step: int) -> float:
    """For how long the others went on after a step, by their own clocks, seconds."""
    cell = (step - steps.first) // steps.width
    times = [
        h.ended - float(row[cell])
        for h, row in zip(steps.histories, steps.matrix(ENDS), strict=True)
        if h.steps[-1] > step and cell < len(row) and not np.isnan(row[cell])
    ]
    return float(np.median(times)) if times else 0.0


def _all_at_one_step(steps: Steps, now: float) -> Finding:
    newest = max(h.ended for h in steps.histories)
    last = max(int(h.steps[-1]) for h in steps.histories)
    silent = now - newest
    usual = _usual_s(steps)
    may_hang = _limit_s(steps) < silent < RECENT_S
    if may_hang:
        summary = (
            f"no rank has completed a step for {seconds(silent)}, after step {last} (a step takes "
            f"{seconds(usual)}): the job hangs or has ended, and step records do not say which"
        )
    else:
        summary = (
            f"{who(steps.ranks)} recorded steps up to {last}, and nothing in their records grew or "
            "went wrong; how the job ended they do not say"
        )
    return Finding(
        source="signal",
        kind=Kind.INCONCLUSIVE if may_hang else Kind.HEALTHY,
        confidence=Confidence.POSSIBLE,
        summary=summary,
        where=Where(step=last + 1 if may_hang else None),
    )
