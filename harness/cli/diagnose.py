"""`drill diagnose PATH...`."""

import gc
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import err_console, json_option, out_console, write_text

if TYPE_CHECKING:
    from harness.diagnose.api import Result
    from harness.model.comparison import ComparedResult


@click.command("diagnose")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--world-size", type=click.IntRange(min=1), help="Ranks in the job, if not recorded.")
@click.option("--show-rank", type=click.IntRange(min=0), metavar="N", help="Print one rank's recorded calls.")
@click.option("--group", metavar="NAME", help="With --show-rank: only this process group.")
@click.option(
    "--state",
    type=click.Choice(["done", "started", "scheduled", "unknown"]),
    help="With --show-rank: only calls in this state.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="What it was like before: say what got slower since. Profiler traces, or a run.",
)
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="NAME=VALUE",
    help="What counts as slow, late, growing.",
)
@click.option("--arrivals", is_flag=True, help="Print who enters each group's collectives last.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the report as HTML too.")
@click.option(
    "--md", type=click.Path(path_type=Path), metavar="FILE", help="Write the five-part report, as Markdown."
)
@json_option
def command(
    paths: tuple[Path, ...],
    world_size: int | None,
    show_rank: int | None,
    group: str | None,
    state: str | None,
    baseline: Path | None,
    thresholds: tuple[str, ...],
    arrivals: bool,
    html: Path | None,
    md: Path | None,
    as_json: bool,
) -> None:
    """Say what happened, from the files of a run or an incident.

    PATH is a bundle (a run's folder), Flight Recorder dumps, logs of any launcher (a file a rank, a file a
    node, one for all; AIStore's daemon logs beside them), or step records of ours, torchtitan, Megatron or
    DeepSpeed: folders, files, globs, .gz, .tar, .zip, several at once. With --baseline: profiler traces of
    any ranks, or runs, on both sides.
    Exit code 0: a diagnosis was reached; 3: the evidence does not decide; 4: nothing readable.
    """
    from harness.model.errors import UsageError
    from harness.report.progress import LoadBar

    if show_rank is None and (group or state):
        raise UsageError("--group and --state choose among the calls of --show-rank N")
    if thresholds and (baseline is not None or show_rank is not None or arrivals):
        raise UsageError("--threshold is for a diagnosis: --baseline, --show-rank, --arrivals go without it")
    if baseline is not None and (show_rank is not None or arrivals or html or md):
        raise UsageError(
            "--baseline compares two sides: --show-rank, --arrivals, --html and --md look at one"
        )
    if baseline is None and show_rank is None and not arrivals:
        _show(_diagnosed(paths, world_size, thresholds), html, md, as_json)
        return
    with LoadBar(err_console) as bar:
        if baseline is not None:
            from harness.diagnose.comparing import compare

            compared = compare(paths, baseline, world_size, bar.update)
        else:
            from harness.diagnose.api import read_evidence

            flight = read_evidence(paths, world_size, bar.update).flight
    if baseline is not None:
        _show_compared(compared, as_json)
        return
    if arrivals:
        from harness.report.terminal import show_arrivals

        show_arrivals(out_console(), flight)
        return
    if show_rank is not None:
        from harness.bundle.codec import to_json
        from harness.diagnose.flight.records import records_of
        from harness.report.terminal import show_records

        records = records_of(flight, show_rank, group, state)
        if as_json:
            click.echo(json.dumps(to_json(records)))
        else:
            show_records(out_console(), records)


def _diagnosed(paths: tuple[Path, ...], world_size: int | None, thresholds: tuple[str, ...]) -> "Result":
    # numpy starts a thread a core otherwise, which nothing here uses, and which a forked process would lack.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from harness.diagnose.ahead import logs_ahead
    from harness.diagnose.garbage import no_garbage_collection
    from harness.diagnose.signals.thresholds import DEFAULTS
    from harness.report.progress import LoadBar

    limits = DEFAULTS.with_values(thresholds)
    with no_garbage_collection(), logs_ahead(paths) as logs, LoadBar(err_console) as bar:
        # All that weighs is loaded while other processes read.
        from harness.diagnose.api import diagnose

        result = diagnose(*paths, world_size=world_size, on_progress=bar.update, limits=limits, logs=logs)
    # All that was read lives to the end: no look for cycles in it then.
    gc.freeze()
    return result


def _show(result: "Result", html: Path | None, md: Path | None, as_json: bool) -> None:
    from harness.bundle.codec import to_json
    from harness.model.kinds import Kind

    if html is not None:
        from harness.report.html import diagnosis_page

        write_text("--html", html, diagnosis_page(result))
    if md is not None:
        from harness.report.markdown import diagnosis_markdown

        write_text("--md", md, diagnosis_markdown(result.diagnosis))
    if as_json:
        click.echo(json.dumps(to_json(result.diagnosis)))
    else:
        from harness.report.terminal import show_diagnosis

        show_diagnosis(out_console(), result)
    if result.diagnosis.kind is Kind.INCONCLUSIVE:
        raise SystemExit(3)


def _show_compared(result: "ComparedResult", as_json: bool) -> None:
    from harness.bundle.codec import to_json
    from harness.model.kinds import Kind

    if as_json:
        document = to_json(result.diagnosis)
        assert isinstance(document, dict)
        click.echo(json.dumps({**document, "comparison": to_json(result.comparison)}))
    else:
        from harness.report.comparison import show_comparison

        show_comparison(out_console(), result)
    if result.diagnosis.kind is Kind.INCONCLUSIVE:
        raise SystemExit(3)
