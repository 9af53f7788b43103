"""One run, with every value decided and where each came from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.model.spec import DrillSpec, Expectation, Mode, ParameterValue


@dataclass(frozen=True)
class Setting:
    """A value and its origin: ``--flag``, ``DRILL_NAME``, ``drill.toml`` or ``default``."""

    value: ParameterValue | tuple[int, ...] | None
    origin: str


@dataclass(frozen=True)
class RunPlan:
    """Everything needed to start one drill. `argv` is what the script gets, `env` what its ranks get.

    `shared`: all ranks on one card. `watchdog`: dumps are left to the watchdog's own timeout. `notes`: what
    this run cannot show, or does otherwise than asked, and why. `job_env`: the real job's variables.
    """

    spec: DrillSpec
    mode: Mode
    nproc: int
    culprits: tuple[int, ...]
    backend: str
    backend_reason: str
    launcher: str
    timeout_s: float
    parameters: Mapping[str, ParameterValue]
    settings: Mapping[str, Setting]
    expectation: Expectation
    argv: tuple[str, ...]
    env: Mapping[str, str]
    out: Path
    max_restarts: int = 0
    shared: bool = False
    watchdog: bool = False
    notes: tuple[str, ...] = ()
    job_env: Mapping[str, str] | None = None
