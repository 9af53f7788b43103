"""`drill postmortem RUN`."""

from pathlib import Path

import click

from harness.cli.durations import DURATION


@click.command("postmortem")
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--gpus", type=click.IntRange(min=1), metavar="N", help="How many GPUs stood still. [its ranks]"
)
@click.option("--price", type=click.FloatRange(min=0), metavar="USD", help="Of a GPU and hour. [2.5]")
@click.option("--interval", "interval_s", type=DURATION, metavar="T", help="Between checkpoints. [measured]")
@click.option("--save", "save_s", type=DURATION, metavar="T", help="What a save delays training. [measured]")
@click.option("--mtbf", "mtbf_s", type=DURATION, metavar="T", help="Between failures. [this run's]")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Instead of stdout."
)
def command(
    run: Path,
    gpus: int | None,
    price: float | None,
    interval_s: float | None,
    save_s: float | None,
    mtbf_s: float | None,
    out: Path | None,
) -> None:
    """Fill in a postmortem from a bundle: impact, timeline, cause, where the time went, what is unknown.

    Times are given as 45s, 24m, 3h. Exit code 4: nothing readable under RUN.
    """
    from harness.bundle.layout import Layout
    from harness.diagnose.api import diagnose
    from harness.model.errors import PrerequisiteError
    from harness.postmortem.costs import Fleet
    from harness.postmortem.markdown import Assumed, postmortem
    from harness.postmortem.moments import incident_of

    diagnosis = diagnose(run).diagnosis
    incident = incident_of(Layout(run), (*diagnosis.culprits, *diagnosis.suspects))
    fleet = Fleet(gpus or diagnosis.ranks.expected or 1, 2.5 if price is None else price)
    assumed = Assumed(fleet, price is not None, mtbf_s, interval_s, save_s)
    text = postmortem(run.resolve().name, diagnosis, incident, assumed)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PrerequisiteError(f"{out}: {error.strerror}: give another file with --out") from None
    click.echo(str(out))
