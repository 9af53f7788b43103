"""`drill collect`."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import err_console, json_option, out_console

if TYPE_CHECKING:
    from harness.incident.collect import CollectResult
    from harness.observe.jobs import Job

_NICENESS = 19
"""Ranks that keep every core busy come first: what we do can wait."""


@click.command("collect")
@click.option(
    "--torchrun-pid", type=click.IntRange(min=1), metavar="P", help="The ranks under this torchrun."
)
@click.option("--match", metavar="REGEX", help="The ranks whose command line matches.")
@click.option("--pid", "pids", multiple=True, metavar="P[,P]", help="The ranks themselves. Repeatable.")
@click.option(
    "--dump-path",
    metavar="PREFIX",
    help="Where dumps are, without the rank. [from the ranks' environment]",
)
@click.option(
    "--log-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="torchrun's --log-dir, where it cannot be found.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=75.0,
    show_default=True,
    metavar="S",
    help="How long to wait for dumps that NCCL's watchdogs may still write.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=0, max=1000),
    default=10,
    show_default=True,
    metavar="N",
    help="How often the stacks of a job that moves are sampled: who waits for whom? 0: not again.",
)
@click.option(
    "--over",
    "over_s",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Over how many seconds these samples are spread.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="The bundle. [runs/<time>-collect]"
)
@json_option
def command(
    torchrun_pid: int | None,
    match: str | None,
    pids: tuple[str, ...],
    dump_path: str | None,
    log_dir: Path | None,
    wait_s: float,
    samples: int,
    over_s: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Take evidence from a running job that was started without drill, and diagnose it.

    Run it on each node, then `drill diagnose node*/`. The job is neither stopped, signalled nor slowed.
    Exit code 0: a diagnosis was reached; 3: the evidence does not decide; 4: no rank was found.
    """
    from harness.model.errors import Interrupted, UsageError

    if sum((torchrun_pid is not None, match is not None, bool(pids))) != 1:
        raise UsageError("say which job: one of --torchrun-pid P, --match REGEX, --pid P...")
    job = _find(torchrun_pid, match, pids)

    from harness.incident.collect import Incident, collect_folder
    from harness.model.kinds import Kind
    from harness.report.progress import PhaseLine

    root = collect_folder(out)
    os.nice(_NICENESS)
    with PhaseLine(err_console(), "collect") as line:
        try:
            collected = Incident(job, root, dump_path, log_dir, wait_s, samples, over_s, line.phase).run()
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; the job was not touched, bundle kept: {root}") from None
    _show(collected, as_json)
    if collected.result.diagnosis.kind is Kind.INCONCLUSIVE:
        raise SystemExit(3)


def _find(torchrun_pid: int | None, match: str | None, pids: tuple[str, ...]) -> "Job":
    from harness.model.errors import UsageError
    from harness.observe import jobs

    if torchrun_pid is not None:
        return jobs.ranks_of_agent(torchrun_pid)
    if match is not None:
        return jobs.ranks_matching(match)
    numbers = [text.strip() for given in pids for text in given.split(",")]
    wrong = next((text for text in numbers if not (text.isascii() and text.isdigit())), None)
    if wrong is not None:
        raise UsageError(f"--pid {wrong}: not a process id")
    return jobs.ranks_among([int(text) for text in numbers])


def _show(collected: "CollectResult", as_json: bool) -> None:
    from harness.model.ranks import format_ranks

    if as_json:
        from harness.bundle.codec import to_json

        document = {
            "schema": "drill/collect/1",
            "bundle": str(collected.bundle),
            "diagnosis": to_json(collected.result.diagnosis),
            "seconds": to_json(collected.seconds),
        }
        click.echo(json.dumps(document))
        return
    from harness.report.terminal import show_diagnosis

    job = collected.job
    show_diagnosis(out_console(), collected.result)
    click.echo(f"ranks    {format_ranks(job.ranks)} of {job.world_size}, attempt {job.attempt}")
    click.echo(f"looked   {collected.notice.removeprefix('collect: ')}")
    click.echo(f"bundle   {collected.bundle}")
