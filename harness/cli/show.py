"""`drill show NAME`."""

from pathlib import Path

import click

from harness.cli.common import drills_dir_option, out_console


@click.command("show")
@click.argument("name")
@drills_dir_option
def command(name: str, drills_dirs: tuple[Path, ...]) -> None:
    """One drill: what it breaks, what must be diagnosed, and each value with its origin."""
    from harness.catalog.find import find_drill
    from harness.catalog.settings import OPTIONS, Sources, settle
    from harness.model.ranks import format_ranks
    from harness.report.terminal import plain_table

    spec = find_drill(name, drills_dirs)
    settings = settle(spec, Sources.read({}, ()))
    console = out_console()
    console.print(f"[bold]{spec.name}[/]  {spec.summary}", soft_wrap=True)
    console.print(f"{spec.source}", style="dim", soft_wrap=True)
    if spec.stands_in_for:
        console.print(f"on CPUs this stands in for: {spec.stands_in_for}", soft_wrap=True)
    modes = plain_table("mode", "what it does", "must be diagnosed as")
    for mode in spec.modes.values():
        modes.add_row(mode.name, mode.summary, mode.expect.kind.value)
    console.print()
    console.print(modes)
    values = plain_table("setting", "value", "from", "")
    for key, setting in settings.items():
        parameter = spec.parameters.get(key) or OPTIONS[key]
        value = setting.value
        text = format_ranks(value) if isinstance(value, tuple) else str(value)
        label = key if key in OPTIONS else f"--set {key}"
        values.add_row(label, text or "-", setting.origin, parameter.help)
    console.print()
    console.print(values)
