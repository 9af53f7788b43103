"""A drill as the rooms see it, after its YAML was validated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.model.kinds import Kind

ParameterValue = int | float | str | bool


@dataclass(frozen=True)
class Parameter:
    """One `--set key=value` of a drill, passed to its script as ``--key value``.

    `shared`: the default where all ranks share one card.
    """

    name: str
    type: str
    default: ParameterValue
    help: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[ParameterValue, ...] = ()
    shared: ParameterValue | None = None
    ours: bool = False
    """Whether it is for the harness; the script does not get it."""


@dataclass(frozen=True)
class Expectation:
    """What must be diagnosed. `accused` is culprits, suspects or nobody; `ranks` whom, once planned.

    `trace`: what the fault itself leaves behind, apart from the harness's record of it (`harness.trace`).
    `offsets`: who else is a suspect, counted from the culprit, or back from it where those are outside.
    """

    kind: Kind
    accused: str = "culprits"
    ranks: tuple[int, ...] = ()
    site: str | None = None
    how: str | None = None
    signal: str | None = None
    recovered: bool = False
    offsets: tuple[int, ...] = ()
    trace: tuple[str, str] | None = None
    evidence: tuple[str, ...] = ()
    within_s: float | None = None
    fault: bool = True


@dataclass(frozen=True)
class Mode:
    """One way in which a drill breaks things.

    `tie`: expected where culprits are half of the ranks. `detail`: expected with debug level DETAIL, where
    torch's own comparison stops the job before a dump could tell more. `parameters`: defaults that differ
    in this mode. `outside`: what the harness does to the job from outside (sigterm, cancel, hangup, lost).
    `needs`: of the machine (network_namespace, memory_cgroup, gpu). `samples`: how often the stacks of
    all ranks are sampled while the job runs, once it is past step `at`: for slopes, which no clock notices.
    `page`: the scene of the page drill that plays beside the ranks, whose alert must reach a pager.
    """

    name: str
    summary: str
    expect: Expectation
    tie: Expectation | None = None
    detail: Expectation | None = None
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    max_restarts: int = 0
    outside: str | None = None
    needs: tuple[str, ...] = ()
    samples: int = 0
    page: str | None = None


@dataclass(frozen=True)
class DrillSpec:
    """One drill: what it runs, what it breaks, what must be found."""

    name: str
    summary: str
    script: Path
    source: Path
    modes: Mapping[str, Mode]
    default_mode: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    backends: tuple[str, ...] = ("gloo",)
    nproc: int = 8
    culprit: tuple[int, ...] = ()
    timeout_s: float = 120.0
    stands_in_for: str | None = None
    preload: tuple[str, ...] = ()
