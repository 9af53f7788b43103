"""`drill cost`."""

import json

import click

from harness.cli.common import json_option, out_console
from harness.cli.durations import DURATION


@click.command("cost")
@click.option("--gpus", type=click.IntRange(min=1), default=1024, show_default=True, metavar="N")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    default=2.5,
    show_default=True,
    metavar="USD",
    help="Of a GPU and hour; an assumption, not an offer.",
)
@click.option(
    "--length", "run_s", type=DURATION, default="30d", show_default=True, metavar="T", help="Of the run."
)
@click.option(
    "--mfu", type=click.FloatRange(min=0.01, max=100), default=42.0, show_default=True, metavar="PERCENT"
)
@click.option(
    "--save",
    "save_s",
    type=DURATION,
    default="45s",
    show_default=True,
    metavar="T",
    help="What a save delays training.",
)
@click.option(
    "--mtbf", "mtbf_s", type=DURATION, default="3h", show_default=True, metavar="T", help="Between failures."
)
@click.option(
    "--interval",
    "interval_s",
    type=DURATION,
    default="24m",
    show_default=True,
    metavar="T",
    help="Between checkpoints, now.",
)
@click.option(
    "--detect",
    "detect_s",
    type=DURATION,
    default="100s",
    show_default=True,
    metavar="T",
    help="Until a page, with alerts.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=DURATION,
    default="10m",
    show_default=True,
    metavar="T",
    help="Until the watchdog speaks, without.",
)
@click.option(
    "--decide",
    "decide_s",
    type=DURATION,
    default="9m",
    show_default=True,
    metavar="T",
    help="With a runbook.",
)
@click.option(
    "--wonder", "wonder_s", type=DURATION, default="30m", show_default=True, metavar="T", help="Without one."
)
@json_option
def command(
    gpus: int,
    price: float,
    run_s: float,
    mfu: float,
    save_s: float,
    mtbf_s: float,
    interval_s: float,
    detect_s: float,
    timeout_s: float,
    decide_s: float,
    wonder_s: float,
    as_json: bool,
) -> None:
    """What an MFU point costs, a hang with and without alerts, and a checkpoint interval.

    Dump, restart and load are taken as 2, 8 and 7 minutes. Times are given as 45s, 24m, 3h, 30d.
    """
    from harness.bundle.codec import to_json
    from harness.postmortem.answers import answers

    found = answers(
        gpus, price, run_s, mfu / 100, save_s, mtbf_s, interval_s, (detect_s, decide_s), (timeout_s, wonder_s)
    )
    if as_json:
        click.echo(json.dumps({"schema": "drill/cost/1", **to_json(found)}))  # type: ignore[dict-item]
        return
    console = out_console()
    for line in found.lines():
        console.print(line, soft_wrap=True)
