"""`drill run NAME...`."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import (
    ENV_FILES,
    ENV_SCRIPTS,
    drills_dir_option,
    err_console,
    json_option,
    out_console,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.catalog.selection import PlannedRun, RunTitle
    from harness.many import RunOutcome, Spectator
    from harness.model.plan import RunPlan
    from harness.report.junit import JUnitFile


@click.command("run")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "every", is_flag=True, help="Every drill once, in its default mode.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Every drill with this tag. Repeatable.")
@click.option("--sweep", is_flag=True, help="Every mode and every culprit of the drills named, or of all.")
@click.option("--repeat", metavar="N", type=click.IntRange(min=1), default=1, help="Each run N times.")
@click.option("-j", "jobs", metavar="N", type=click.IntRange(min=1), default=1, help="N runs at once. [1]")
@click.option("--culprit", metavar="N[,N]", help="Rank or ranks to break.")
@click.option("--mode", help="Which way to break it; see `drill show NAME`.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A drill's own parameter.")
@click.option("--nproc", metavar="N", help="Number of ranks.")
@click.option("--backend", metavar="auto|gloo|nccl", help="auto: nccl on a GPU a rank, or on one for all.")
@click.option(
    "--share-gpu", is_flag=True, flag_value="true", default=None, help="All ranks on one GPU, over sockets."
)
@click.option("--launcher", metavar="fork|torchrun", help="fork is faster; torchrun execs the script.")
@click.option("--max-restarts", metavar="N", help="Restarts that torchrun may make. [0]")
@click.option(
    "--detail", is_flag=True, flag_value="true", default=None, help="With TORCH_DISTRIBUTED_DEBUG=DETAIL."
)
@click.option(
    "--wait-for-watchdog",
    is_flag=True,
    flag_value="true",
    default=None,
    help="Leave dumps to NCCL's watchdog and check each link of its chain.",
)
@ENV_FILES
@ENV_SCRIPTS
@click.option("--timeout", metavar="S", help="Bound on each run, seconds.")
@click.option("--out", metavar="DIR", help="Folder for bundles. [runs]")
@click.option("--threshold", metavar="S", help="Drill page: seconds without a step that are a stall. [90]")
@click.option(
    "--alertmanager", metavar="URL", help="Drill page: page through your own, and ask whether it came."
)
@click.option("--bin-dir", metavar="DIR", help="Drill page: where Prometheus and Alertmanager are.")
@click.option(
    "--junit", metavar="FILE", type=click.Path(path_type=Path), help="Write the results as JUnit XML."
)
@click.option("--dry-run", is_flag=True, help="Print the launch and the fault plan, start nothing.")
@drills_dir_option
@json_option
def command(
    names: tuple[str, ...],
    every: bool,
    tags: tuple[str, ...],
    sweep: bool,
    repeat: int,
    jobs: int,
    sets: tuple[str, ...],
    drills_dirs: tuple[Path, ...],
    env_files: tuple[Path, ...],
    env_scripts: tuple[Path, ...],
    threshold: str | None,
    alertmanager: str | None,
    bin_dir: str | None,
    junit: Path | None,
    dry_run: bool,
    as_json: bool,
    **flags: str | None,
) -> None:
    """Break a small copy of a job on purpose and check that the right rank is blamed.

    Exit code 0: passed; 1: another diagnosis than what was injected; 3: inconclusive; 4: a
    prerequisite is missing. Of several runs the worst counts: 5 (a bug here), 1, 3, 4, 0.
    """
    from harness.catalog.selection import Selection, left_out_of_sweep, plan_selection
    from harness.catalog.settings import Sources

    selection = Selection(names, every, tags, sweep, repeat)
    ours = {"threshold": threshold, "alertmanager": alertmanager, "bin_dir": bin_dir}
    sets = (*sets, *(f"{name}={value}" for name, value in ours.items() if value is not None))
    if alertmanager is not None and flags["mode"] is None:
        flags["mode"] = "own"
    job_env = _job_variables([*env_files, *env_scripts])
    sources = Sources.read(flags, sets)
    for what, why in left_out_of_sweep(selection, sources, drills_dirs).items():
        click.echo(f"drill: the sweep goes without {what}: {why}", err=True)
    planned = plan_selection(selection, sources, drills_dirs, job_env)
    if dry_run:
        _show_plans(planned, as_json)
        return
    titles = [run.title for run in planned]
    xml = _junit_file(junit, titles) if junit else None
    run = _run_several if selection.several else _run_one
    code = run(planned, jobs, xml, as_json)
    if xml is not None and xml.failure is not None:
        click.echo(f"drill: {xml.failure}", err=True)
        code = code or xml.failure.exit_code
    raise SystemExit(code)


def _job_variables(files: "Sequence[Path]") -> dict[str, str] | None:
    """What the job will have of the variables that decide how ranks run; None if no file is named."""
    from harness.jobenv import read_job_environment, relevant

    if not files:
        return None
    job = read_job_environment(files)
    for skipped in (*job.not_understood, *job.assumed):
        click.echo(f"drill: note: {skipped}", err=True)
    return relevant(job.over({}))


def _junit_file(path: Path, titles: "Sequence[RunTitle]") -> "JUnitFile":
    from harness.report.junit import JUnitFile

    return JUnitFile(path, titles)


def _run_one(planned: "Sequence[PlannedRun]", jobs: int, xml: "JUnitFile | None", as_json: bool) -> int:
    """A single run with its whole report."""
    from harness.many import run_many
    from harness.report.documents import outcome_document
    from harness.report.spectators import OneRun
    from harness.report.terminal import show_run

    with OneRun(err_console(), planned[0].title) as shown:
        (outcome,), interrupted = run_many(planned, jobs, _with_junit(shown, xml))
    if outcome.error is not None:
        _show_trace(outcome)
        click.echo(f"drill: {outcome.error.message}", err=True)
        return outcome.error.exit_code
    if as_json:
        click.echo(json.dumps(outcome_document(outcome)))
    else:
        assert outcome.run is not None
        show_run(out_console(), outcome.run)
    return 130 if interrupted else outcome.exit_code


def _run_several(planned: "Sequence[PlannedRun]", jobs: int, xml: "JUnitFile | None", as_json: bool) -> int:
    """A line a run, then a table."""
    from harness.many import run_many, worst
    from harness.report.documents import runs_document
    from harness.report.spectators import ManyRuns
    from harness.report.summary import show_summary

    started = time.monotonic()
    console = err_console() if as_json else out_console()
    with ManyRuns(console, err_console(), [run.title for run in planned]) as shown:
        outcomes, interrupted = run_many(planned, jobs, _with_junit(shown, xml))
    code = 130 if interrupted else worst(outcome.exit_code for outcome in outcomes)
    for outcome in outcomes:
        _show_trace(outcome)
    show_summary(console, outcomes, time.monotonic() - started, code)
    if interrupted:
        click.echo("drill: interrupted; ranks stopped, bundles kept", err=True)
    if as_json:
        click.echo(json.dumps(runs_document(outcomes)))
    return code


def _with_junit(shown: "Spectator", xml: "JUnitFile | None") -> "Spectator":
    from harness.report.spectators import Both

    return Both(shown, xml) if xml is not None else shown


def _show_trace(outcome: "RunOutcome") -> None:
    """A traceback is shown for our own bugs only."""
    if outcome.error is not None and outcome.error.trace:
        click.echo(f"{outcome.error.trace}drill: {outcome.title}: this is a bug here", err=True)


def _show_plans(planned: "Sequence[PlannedRun]", as_json: bool) -> None:
    """What would run. Raises the first missing prerequisite after everything else was shown."""
    from harness.model.plan import RunPlan
    from harness.report.documents import plans_document

    plans = [run.plan for run in planned if isinstance(run.plan, RunPlan) and run.title.turn == 1]
    if as_json and plans:
        click.echo(json.dumps(plans_document(plans)))
    elif plans:
        click.echo("\n\n".join(_plan_text(plan) for plan in plans))
    for run in planned:
        if not isinstance(run.plan, RunPlan):
            raise run.plan


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
        *(f"note     {note}" for note in plan.notes),
    )
    return "\n".join(lines)
