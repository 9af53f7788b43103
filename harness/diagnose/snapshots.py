"""A job that was looked at while it runs, not after it failed: what its stacks alone may say."""

import dataclasses

from harness.diagnose.gathered import Gathered
from harness.diagnose.movement import MOVING
from harness.model.diagnosis import RuledOut
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

HANG_S = 90.0
"""No step for so long is a hang on a real job (DIAGNOSIS, thresholds): before, it may save or evaluate."""


def running(gathered: Gathered) -> Finding | None:
    """The main threads, or the steps, were seen moving: there is nothing to convict anybody of."""
    notice = gathered.manifest.notice if gathered.manifest else None
    if notice is None or not notice.startswith(MOVING):
        return None
    return Finding(
        source="stack",
        kind=Kind.HEALTHY,
        confidence=Confidence.LIKELY,
        summary=f"a snapshot of a job that runs: {notice.removeprefix(MOVING).removeprefix(': ')}",
    )


def while_it_may_yet_move(finding: Finding | None, gathered: Gathered) -> Finding | None:
    """A finding of stacks alone, as a suspicion where the job is not known to have stood long enough.

    A rank that saves a checkpoint for a minute while its peers wait looks like one that stalled.
    """
    stood = gathered.stood_s
    if finding is None or stood is None or stood >= HANG_S or not finding.culprits:
        return finding
    because = f"seen standing for {stood:.0f} s: before {HANG_S:.0f} s it may be a save or an evaluation"
    return dataclasses.replace(
        finding,
        confidence=Confidence.POSSIBLE,
        culprits=(),
        suspects=finding.culprits,
        ruled_out=(*finding.ruled_out, RuledOut(finding.kind, f"not certain: {because}")),
    )
