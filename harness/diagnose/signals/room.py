"""The room's door: step records to findings."""

from collections.abc import Mapping, Sequence

from harness.diagnose.signals.formats.foreign import TimerRow
from harness.diagnose.signals.history import RankHistory
from harness.diagnose.signals.result import Circumstances, SignalsResult
from harness.diagnose.signals.thresholds import DEFAULTS, Thresholds


def analyse_steps(
    attempts: Mapping[int, Sequence[RankHistory]],
    around: Circumstances,
    timers: Sequence[TimerRow] = (),
    limits: Thresholds = DEFAULTS,
) -> SignalsResult:
    """Weigh the step records of all starts of a job; slopes are looked for in the last long one."""
    if not attempts and not timers:
        return SignalsResult()
    # Loaded where there is something to weigh: most logs have no step records.
    from harness.diagnose.signals.weigh import weigh_steps

    return weigh_steps(attempts, around, timers, limits)
