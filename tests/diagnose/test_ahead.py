"""Logs that are read while the rest of the diagnoser is loaded."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from harness.diagnose.ahead import logs_ahead
from harness.diagnose.api import diagnose
from harness.diagnose.texts import pool

LINES = (
    "".join(f"[rank{rank}]: 2026-08-08 03:12:{n:02d} step {n}\n" for n in range(60) for rank in range(4))
    + "[rank2]: ValueError: bad sample\n"
)


def test_what_is_read_ahead_is_what_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By other processes or by this one, the answer is the same."""
    monkeypatch.setattr(pool, "PARALLEL_FROM_BYTES", 1)
    (tmp_path / "a.log").write_text(LINES)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(LINES.replace("rank2", "rank3").encode()))

    with logs_ahead([tmp_path]) as logs:
        assert logs is not None
        ahead = diagnose(tmp_path, logs=logs)

    assert ahead == diagnose(tmp_path)
    assert ahead.diagnosis.tiers


@pytest.mark.parametrize("name", ["bundle.json", "launcher.json", "ranks.json"])
def test_logs_of_a_bundle_are_not_read_ahead(tmp_path: Path, name: str) -> None:
    """They lie where the bundle keeps them."""
    (tmp_path / name).write_text("{}")

    with logs_ahead([tmp_path]) as logs:
        assert logs is None


def test_nothing_is_read_ahead_of_what_is_not_there(tmp_path: Path) -> None:
    """The diagnosis says so."""
    with logs_ahead([tmp_path / "gone"]) as logs:
        assert logs is None


def test_processes_end_where_nobody_waits_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in between leaves nothing running."""
    monkeypatch.setattr(pool, "PARALLEL_FROM_BYTES", 1)
    for number in range(4):
        (tmp_path / f"{number}.log").write_text(LINES)

    with pytest.raises(RuntimeError, match="meanwhile"), logs_ahead([tmp_path]) as logs:
        assert logs is not None
        begun = logs._read._begun
        assert begun is not None
        processes = list(begun.pool._processes.values())
        raise RuntimeError("meanwhile")

    assert processes
    assert not any(process.is_alive() for process in processes)


def test_reading_begins_before_what_weighs_is_loaded() -> None:
    """What begins it imports neither the rules nor the rooms that they need."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, harness.diagnose.ahead; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    heavy = {"numpy", "pydantic", "rich", "harness.diagnose.api", "harness.diagnose.logs.rules"}
    assert heavy & set(loaded) == set()
