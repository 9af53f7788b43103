"""`drill new NAME`."""

import click


@click.command("new")
@click.argument("name")
def command(name: str) -> None:
    """A drill of your own: writes its YAML, its script and its test, ready to run and to edit."""
    from harness.catalog.scaffold import new_drill

    spec, script, test = new_drill(name)
    for path, what in (
        (spec, "what is broken, what must be diagnosed"),
        (script, "what each rank runs"),
        (test, "the drill as a test"),
    ):
        click.echo(f"wrote  {path!s:<32}  {what}")
    click.echo(f"\nnext   drill show {name}\n       drill run {name}\n       python -m pytest {test}")
