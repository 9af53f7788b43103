"""`drill doctor`."""

import json

import click

from harness.cli.common import json_option, out_console

_STYLES = {"OK": "green", "WARN": "yellow", "FAIL": "bold red"}


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Can this machine be drilled? Exit code 0, or 4 if a line FAILs."""
    from harness.bundle.codec import to_json
    from harness.doctor import examine

    lines = examine()
    if as_json:
        click.echo(json.dumps({"schema": "drill/doctor/1", "lines": to_json(lines)}))
    else:
        console = out_console()
        for line in lines:
            status = f"[{_STYLES[line.status]}]{line.status:<4}[/]"
            console.print(f"{status}  {line.check:<20} {line.found}", soft_wrap=True)
            if line.remedy:
                console.print(f"      {'':<20} {line.remedy}", style="dim", soft_wrap=True)
    if any(line.status == "FAIL" for line in lines):
        raise SystemExit(4)
