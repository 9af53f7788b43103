"""A probe's options: a name with a default, whose type counts."""

import argparse
from collections.abc import Mapping, Sequence

Value = bool | int | float | str
Options = Mapping[str, Value]

UNABLE = 4
"""Exit code where this machine lacks what the probe needs, as `drill` itself ends."""


class Unable(Exception):
    """This machine lacks something that the probe needs."""


def parse(name: str, defaults: Options, argv: Sequence[str]) -> dict[str, Value]:
    """Options from a command line, each of its default's type."""
    parser = argparse.ArgumentParser(prog=f"python -m harness.worker.probes {name}")
    for key, default in defaults.items():
        kind = _yes if isinstance(default, bool) else type(default)
        parser.add_argument(f"--{key.replace('_', '-')}", type=kind, default=default)
    return dict(vars(parser.parse_args(argv)))


def _yes(text: str) -> bool:
    return text.lower() in ("true", "1", "yes")
