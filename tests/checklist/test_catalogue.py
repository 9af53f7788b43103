"""The catalogue of probes and the probes themselves say the same."""

import ast
import importlib
from pathlib import Path

import pytest

from harness.checklist.catalogue import PROBES

ROOT = Path(__file__).parent.parent.parent / "harness"


def figures_in(path: Path) -> set[str]:
    """Every key that a probe's module writes into a dictionary, by its source."""
    tree = ast.parse(path.read_text())
    return {
        key.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


@pytest.mark.parametrize("name", PROBES)
def test_each_probe_gives_the_figures_that_the_catalogue_promises(name: str) -> None:
    """A criterion is checked against the catalogue before anything runs: it must be true."""
    probe = PROBES[name]
    room = "worker" if probe.torch else "checklist"

    assert set(probe.figures) <= figures_in(ROOT / room / "probes" / f"{name}.py")


@pytest.mark.parametrize("name", [name for name, probe in PROBES.items() if not probe.torch])
def test_options_are_those_of_the_catalogue(name: str) -> None:
    """Same names, same types, same defaults."""
    module = importlib.import_module(f"harness.checklist.probes.{name}")

    assert dict(PROBES[name].arguments) == dict(module.DEFAULTS)
