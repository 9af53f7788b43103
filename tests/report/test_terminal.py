"""The verdict fits a screen: 100 columns, 40 lines."""

import io
import re

import pytest
from rich.console import Console

from harness.report.terminal import show_diagnosis, show_run
from tests.conftest import Drill


@pytest.mark.ranks
@pytest.mark.parametrize("mode", ["size", "skip"])
def test_a_run_fits_a_screen(drill: Drill, mode: str) -> None:
    """One sentence, the table with the break marked, two stacks, timings, bundle, what to type next."""
    run = drill("fr_hang", mode=mode)
    out = io.StringIO()

    show_run(Console(file=out, width=100), run)

    lines = out.getvalue().splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines) <= 100
    text = out.getvalue()
    assert text.startswith("PASS")
    assert "> 9" in text
    # One whose last message the abort cut off is not among those that came to the break.
    assert re.search(r"ranks [0-9,-]+ ", text)
    assert "stack of rank 5" in text
    assert "fault to notice" in text
    assert str(run.bundle.name) in text.replace("\n", "")
    assert "drill diagnose" in text
    assert "\x1b" not in text


@pytest.mark.ranks
def test_a_diagnosis_cites_files(drill: Drill) -> None:
    """What it rests on is shown with the file that can be opened."""
    run = drill("fr_hang", mode="size")
    out = io.StringIO()

    show_diagnosis(Console(file=out, width=100), run.result)

    assert "flight_recorder/attempt_0/rank_5" in out.getvalue()
    assert "stderr.log:" in out.getvalue()
