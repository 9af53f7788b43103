"""Drills in pytest: run one, and assert that it passed.

from harness.testing import assert_passed, run_drill

def test_my_drill(tmp_path):
    assert_passed(run_drill("my_drill", culprit=2, out=tmp_path))
"""

import atexit
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from harness.catalog.find import find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.experiment import Experiment, RunResult
from harness.launch.client import LauncherClient
from harness.model.plan import RunPlan
from harness.model.ranks import format_ranks
from harness.model.spec import ParameterValue
from harness.model.verdict import Outcome
from harness.sharing import without_sharing

__all__ = ["RunResult", "assert_passed", "run_drill"]


def run_drill(
    name: str,
    *,
    mode: str | None = None,
    culprit: int | tuple[int, ...] | None = None,
    nproc: int | None = None,
    parameters: Mapping[str, ParameterValue] | None = None,
    drills_dir: Path | None = None,
    out: Path,
) -> RunResult:
    """Run one drill for real, from the main thread; its bundle goes under `out`.

    What is left out comes from where `drill run` takes it: ``DRILL_*``, drill.toml, the drill's own
    defaults. Drills are the built-in ones, those in ./drills, and those in `drills_dir`. The process that
    starts the ranks is kept until Python ends, with the environment of the first call.

    Raises:
        UsageError: no such drill, or a value that does not fit it.
        PrerequisiteError: something that the drill needs is missing on this machine.
    """
    accused = (culprit,) if isinstance(culprit, int) else culprit
    flags = {
        "mode": mode,
        "culprit": None if accused is None else format_ranks(accused),
        "nproc": None if nproc is None else str(nproc),
        "out": str(out),
    }
    sets = [f"{key}={value}" for key, value in (parameters or {}).items()]
    spec = find_drill(name, [drills_dir] if drills_dir else [])
    plan = plan_run(spec, settle(spec, Sources.read(flags, sets)))
    return run_plan(plan)


def run_plan(plan: RunPlan) -> RunResult:
    """Run what was planned, in this process's own launcher; with fewer ranks if NCCL refuses to share.

    Raises:
        PrerequisiteError: something that the drill needs is missing on this machine.
    """
    run = Experiment(plan, shared_launcher()).run()
    fewer = without_sharing(run)
    return run if fewer is None else Experiment(fewer, shared_launcher()).run()


def assert_passed(run: RunResult) -> None:
    """Assert that a drill passed; the message says which checks failed and what to type next.

    Raises:
        AssertionError: it failed, or it was inconclusive.
    """
    __tracebackhide__ = True
    if run.verdict.verdict is Outcome.PASS:
        return
    from harness.report.summary import misses, short_path

    plan = run.plan
    whom = f", rank {format_ranks(plan.culprits)}" if plan.culprits else ""
    lines = (
        f"{plan.spec.name} {plan.mode.name}{whom}: {run.verdict.verdict.value}",
        *misses(run),
        f"look closer: drill diagnose {short_path(run.bundle)}",
    )
    raise AssertionError("\n  ".join(lines))


@cache
def shared_launcher() -> LauncherClient:
    """One launcher process for all drills of this process: torch is imported once."""
    client = LauncherClient()
    atexit.register(client.close)
    return client
