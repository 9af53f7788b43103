"""`drill list`."""

import json
from pathlib import Path

import click

from harness.cli.common import drills_dir_option, json_option, out_console


@click.command("list")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only drills with this tag. Repeatable.")
@drills_dir_option
@json_option
def command(tags: tuple[str, ...], drills_dirs: tuple[Path, ...], as_json: bool) -> None:
    """Drills, one line each."""
    from harness.catalog.find import all_drills

    drills = all_drills(drills_dirs)
    if tags:
        from harness.catalog.selection import with_tags

        drills = with_tags(drills, tags)
    if as_json:
        rows = [
            {"name": d.name, "summary": d.summary, "modes": list(d.modes), "tags": list(d.tags)}
            for d in drills
        ]
        click.echo(json.dumps({"schema": "drill/list/1", "drills": rows}))
        return
    console = out_console()
    width = max(len(drill.name) for drill in drills)
    for drill in drills:
        console.print(f"[bold]{drill.name:<{width}}[/]  {drill.summary}", soft_wrap=True)
