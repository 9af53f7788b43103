"""Options and consoles that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., object])


ENV_FILES = click.option(
    "--env-file",
    "env_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The job's own environment, NAME=value a line. Repeatable.",
)
ENV_SCRIPTS = click.option(
    "--env-from-script",
    "env_scripts",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The script that launches the job: parsed, never executed. Repeatable.",
)


def drills_dir_option(function: F) -> F:
    """``--drills-dir DIR``, repeatable."""
    option = click.option(
        "--drills-dir",
        "drills_dirs",
        multiple=True,
        type=click.Path(path_type=Path),
        help="More drills, beside the built-in ones and ./drills. Repeatable.",
    )
    return option(function)


def json_option(function: F) -> F:
    """``--json``: stdout is exactly one JSON document, all else goes to stderr."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def write_text(option: str, file: Path, text: str) -> None:
    """Write a report, or say why not."""
    from harness.model.errors import PrerequisiteError

    try:
        file.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise PrerequisiteError(f"{option} {file}: {error.strerror}") from None


def out_console() -> "Console":
    """Standard output for people: colours on a terminal unless NO_COLOR is set."""
    return _console(stderr=False)


def err_console() -> "Console":
    """Standard error for people."""
    return _console(stderr=True)


def _console(stderr: bool) -> "Console":
    """A terminal's own width; 100 columns where a file or pipe reads us."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = 100
    return console
