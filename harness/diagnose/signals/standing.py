"""Step records alone, of a job that made no further step: who is behind, and for how long nobody moved."""

import numpy as np

from harness.diagnose.signals.steps import Steps
from harness.diagnose.signals.wording import seconds, verb, who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind


def standing(steps: Steps, now: float | None) -> Finding | None:
    """Ranks that stopped while others went on; or nobody moves any more, which the records alone cannot place.

    `now`: unix seconds until which a step could have been recorded, None where that is not known. A rank is
    behind if the others ended later steps, and it has been silent for three of its median steps and 90 s
    (DIAGNOSIS, thresholds) by the time of the last of them.
    """
    if not steps.histories:
        return None
    usual = float(np.nanmedian(steps.matrix("step_time_s"))) if steps.has("step_time_s") else float("nan")
    limit = np.nanmax([steps.limits.hang_steps * usual, steps.limits.hang_s])
    newest = max(h.ended for h in steps.histories)
    until = max(newest, now or 0.0)
    ahead = max(int(h.steps[-1]) for h in steps.histories)
    behind = [h for h in steps.histories if h.steps[-1] < ahead and until - h.ended > limit]
    if behind and 2 * len(behind) < len(steps.histories):
        ranks = tuple(h.rank for h in behind)
        last = int(max(h.steps[-1] for h in behind))
        return Finding(
            source="signal",
            kind=Kind.RANK_STALLED,
            confidence=Confidence.POSSIBLE,
            summary=(
                f"{who(ranks)} {verb(ranks, 'has', 'have')} completed no step after step {last}, "
                f"{seconds(until - behind[0].ended)} ago; others reached step {ahead}"
            ),
            suspects=ranks,
            victims=tuple(r for r in steps.ranks if r not in ranks),
            where=Where(step=last + 1),
            evidence=tuple(
                Citation(
                    "signal", f"rank {h.rank}: the last record is of step {h.steps[-1]}", h.file, rank=h.rank
                )
                for h in behind[:3]
            ),
        )
    if now is None or now - newest <= limit:
        return None
    return Finding(
        source="signal",
        kind=Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"no rank has completed a step for {seconds(now - newest)}, after step {ahead} (a step takes "
            f"{seconds(usual)}): the job hangs, or it has ended; its step records do not say which"
        ),
        victims=steps.ranks,
        where=Where(step=ahead + 1),
    )
