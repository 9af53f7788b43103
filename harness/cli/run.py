"""`drill run NAME...`."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import drills_dir_option, err_console, json_option, out_console

if TYPE_CHECKING:
    from harness.experiment import RunResult
    from harness.model.plan import RunPlan

_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}
_WORST = (5, 1, 3, 4, 0)


@click.command("run")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "every", is_flag=True, help="Every drill once, in its default mode.")
@click.option("--culprit", metavar="N[,N]", help="Rank or ranks to break.")
@click.option("--mode", help="Which way to break it; see `drill show NAME`.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A drill's own parameter.")
@click.option("--nproc", metavar="N", help="Number of ranks.")
@click.option("--backend", metavar="auto|gloo|nccl", help="auto takes nccl if there are GPUs enough.")
@click.option("--launcher", metavar="fork|torchrun", help="fork is faster; torchrun execs the script.")
@click.option("--timeout", metavar="S", help="Bound on the whole run, seconds.")
@click.option("--out", metavar="DIR", help="Folder for bundles. [runs]")
@click.option("--dry-run", is_flag=True, help="Print the launch and the fault plan, start nothing.")
@drills_dir_option
@json_option
def command(
    names: tuple[str, ...],
    every: bool,
    sets: tuple[str, ...],
    drills_dirs: tuple[Path, ...],
    dry_run: bool,
    as_json: bool,
    **flags: str | None,
) -> None:
    """Break a small copy of a job on purpose and check that the right rank is blamed.

    Exit code 0: passed; 1: another diagnosis than what was injected; 3: inconclusive; 4: a
    prerequisite is missing.
    """
    plans = _plans(names, every, sets, drills_dirs, flags)
    if dry_run:
        if as_json:
            from harness.report.documents import plans_document

            click.echo(json.dumps(plans_document(plans)))
        else:
            click.echo("\n\n".join(_plan_text(plan) for plan in plans))
        return
    runs = _run_all(plans, as_json)
    if as_json:
        from harness.report.documents import runs_document

        click.echo(json.dumps(runs_document(runs)))
    codes = {_CODES[run.verdict.verdict.value] for run in runs}
    raise SystemExit(next(code for code in _WORST if code in codes))


def _plans(
    names: tuple[str, ...],
    every: bool,
    sets: tuple[str, ...],
    drills_dirs: tuple[Path, ...],
    flags: dict[str, str | None],
) -> "list[RunPlan]":
    from harness.catalog.find import drill_files, find_drill
    from harness.catalog.planning import plan_run
    from harness.catalog.settings import Sources, settle
    from harness.model.errors import UsageError

    if bool(names) == every:
        raise UsageError("name the drills to run, or --all; `drill list` shows them")
    wanted = names or tuple(sorted(drill_files(drills_dirs)))
    sources = Sources.read(flags, sets)
    plans = []
    for name in wanted:
        spec = find_drill(name, drills_dirs)
        plans.append(plan_run(spec, settle(spec, sources)))
    return plans


def _run_all(plans: "list[RunPlan]", as_json: bool) -> "list[RunResult]":
    from harness.experiment import Experiment
    from harness.launch.client import LauncherClient
    from harness.model.errors import Interrupted
    from harness.report.progress import PhaseLine
    from harness.report.terminal import show_run

    runs: list[RunResult] = []
    with LauncherClient() as client, _signals_interrupt():
        for plan in plans:
            experiment = None
            with PhaseLine(err_console(), plan.spec.name) as line:
                experiment = Experiment(plan, client, line.phase)
                try:
                    runs.append(experiment.run())
                except (Interrupted, KeyboardInterrupt):
                    kept = experiment.bundle if hasattr(experiment, "_writer") else "none yet"
                    raise Interrupted(f"interrupted; ranks stopped, bundle kept: {kept}") from None
            if not as_json:
                show_run(out_console(), runs[-1])
    return runs


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: by an exception that stops the ranks on its way."""
    from harness.model.errors import Interrupted

    def interrupt(signum: int, frame: object) -> None:
        raise Interrupted(f"{signal.Signals(signum).name}")

    before = {s: signal.signal(s, interrupt) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _plan_text(plan: "RunPlan") -> str:
    from harness.model.ranks import format_ranks

    accused = plan.expectation.accused
    ranks = format_ranks(plan.expectation.ranks)
    env = " ".join(f"{key}={value}" for key, value in sorted(plan.env.items()))
    lines = (
        f"drill    {plan.spec.name}, mode {plan.mode.name}: {plan.mode.summary}",
        f"launch   {plan.launcher}, {plan.nproc} ranks, {plan.backend} ({plan.backend_reason})",
        f"runs     {plan.spec.script} {' '.join(plan.argv)}",
        f"with     {env}",
        f"breaks   rank {format_ranks(plan.culprits)}" if plan.culprits else "breaks   nothing",
        f"expects  {plan.expectation.kind.value}, {accused}" + (f": {ranks}" if ranks else ""),
        f"bundle   under {plan.out}/",
    )
    return "\n".join(lines)
