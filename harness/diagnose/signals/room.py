"""The room's door: step records to findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.diagnose.signals.formats.foreign import TimerRow
from harness.diagnose.signals.history import RankHistory
from harness.diagnose.signals.steps import Steps
from harness.diagnose.signals.thresholds import DEFAULTS, Thresholds
from harness.model.finding import Finding


@dataclass(frozen=True)
class SignalsResult:
    """`findings`: the one that explains most comes first. `missing`: what could not be asked."""

    steps: Steps = field(default_factory=lambda: Steps(()))
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Circumstances:
    """What other evidence says about the job whose steps these are.

    `alike`: all ranks are known to have the same part in it; `on_cpus`: it computes and communicates on CPUs
    only; `host_bytes`: memory of a host.
    """

    world_size: int = 0
    alike: bool = False
    on_cpus: bool = False
    host_bytes: float | None = None


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
