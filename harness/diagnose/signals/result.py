"""What the room is told about a job, and what it answers."""

from dataclasses import dataclass, field

from harness.diagnose.signals.steps import Steps
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
