"""`drill diagnose PATH`."""

import json
from pathlib import Path

import click

from harness.cli.common import json_option, out_console


@click.command("diagnose")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--world-size", type=click.IntRange(min=1), help="Ranks in the job, if not recorded.")
@json_option
def command(path: Path, world_size: int | None, as_json: bool) -> None:
    """Say what happened, from the files of a run or an incident.

    PATH is a bundle (a run's folder). Exit code 0: a diagnosis was reached; 3: the evidence does not
    decide; 4: nothing readable under PATH.
    """
    from harness.bundle.codec import to_json
    from harness.diagnose.api import diagnose
    from harness.model.kinds import Kind

    result = diagnose(path, world_size)
    if as_json:
        click.echo(json.dumps(to_json(result.diagnosis)))
    else:
        from harness.report.terminal import show_diagnosis

        show_diagnosis(out_console(), result)
    if result.diagnosis.kind is Kind.INCONCLUSIVE:
        raise SystemExit(3)
