"""The per-step writer never disturbs training."""

import json
from pathlib import Path

import pytest

from harness.worker.signals import Signals


def test_one_valid_line_a_step(tmp_path: Path) -> None:
    """Every record has time, step, rank and duration, and what was measured besides."""
    signals = Signals(tmp_path / "rank_3.jsonl", 3)
    signals.step(0, loss=float("nan"))
    signals.step(1, loss=2.5)

    first, second = (json.loads(line) for line in (tmp_path / "rank_3.jsonl").read_text().splitlines())
    assert (first["step"], first["rank"], first["loss"]) == (0, 3, "NaN")
    assert second["step_time_s"] >= 0
    assert second["t"] >= first["t"]


def test_a_restart_appends(tmp_path: Path) -> None:
    """Nothing is ever truncated."""
    for _ in range(2):
        Signals(tmp_path / "rank_0.jsonl", 0).step(0)

    assert len((tmp_path / "rank_0.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("path", ["/dev/full", "/proc/nowhere/rank_0.jsonl"])
def test_a_disk_that_refuses_is_counted_not_raised(path: str) -> None:
    """Training goes on; `lost` says how much is missing."""
    signals = Signals(Path(path), 0)
    for step in range(3):
        signals.step(step)

    assert signals.lost >= 1


def test_a_value_without_json_form_is_counted_not_raised(tmp_path: Path) -> None:
    """A tensor handed in by mistake does not end the training."""
    signals = Signals(tmp_path / "rank_0.jsonl", 0)
    signals.step(0, loss=object())

    assert (signals.lost, signals.lost_fields) == (0, 1)
