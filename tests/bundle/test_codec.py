"""Values to JSON and files."""

import json
import math
from pathlib import Path

import pytest

from harness.bundle.codec import dump_line, to_json, write_json
from harness.model.bundle import GroupRecord, Manifest
from harness.model.kinds import Kind


def test_not_finite_numbers_are_strings() -> None:
    """The lines stay valid JSON."""
    line = dump_line({"a": math.nan, "b": math.inf, "c": -math.inf})

    assert json.loads(line) == {"a": "NaN", "b": "Infinity", "c": "-Infinity"}


def test_values_become_plain_json() -> None:
    """Dataclasses, enums, tuples and integer keys have one obvious form."""
    assert to_json({5: Kind.HEALTHY, 1: GroupRecord("0", "default_pg", (0, 1))}) == {
        "5": "healthy",
        "1": {"name": "0", "description": "default_pg", "ranks": [0, 1]},
    }
    with pytest.raises(TypeError, match="object has no JSON form"):
        to_json(object())


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    """A reader never sees half a file, and nothing is left beside it."""
    path = tmp_path / "bundle.json"
    write_json(path, Manifest(8, "gloo", "fork", 0.0))
    before = path.read_bytes()

    with pytest.raises(TypeError):
        write_json(path, {"x": object()})

    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["bundle.json"]
