"""Drills in pytest: what a user's test calls, and what it says when a drill does not pass."""

import dataclasses
from pathlib import Path

import pytest

from harness.model.errors import UsageError
from harness.model.verdict import Check, Outcome, Verdict
from harness.testing import RunResult, assert_passed, run_drill


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A control run of two ranks."""
    return run_drill("control", nproc=2, parameters={"steps": 3}, out=tmp_path_factory.mktemp("runs"))


@pytest.mark.ranks
def test_a_passed_run_is_passed_on(healthy: RunResult) -> None:
    """The result has the verdict and the bundle; settings reached the run."""
    assert_passed(healthy)

    assert healthy.verdict.verdict is Outcome.PASS
    assert healthy.steps == 3
    assert (healthy.bundle / "bundle.json").exists()


@pytest.mark.ranks
@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.INCONCLUSIVE])
def test_a_miss_says_what_was_found_and_what_to_type(healthy: RunResult, outcome: Outcome) -> None:
    """The message has the failing checks, the diagnosis and the bundle; inconclusive is a miss too."""
    checks = {**healthy.verdict.checks, "culprits": Check(False, "rank 2", "nobody")}
    missed = dataclasses.replace(healthy, verdict=Verdict(outcome, checks))

    with pytest.raises(AssertionError) as raised:
        assert_passed(missed)

    lines = str(raised.value).splitlines()
    assert lines[0] == f"control none: {outcome.value}"
    assert "  culprits: expected rank 2, found nobody" in lines
    assert any(line.startswith("  diagnosed: healthy (certain): ") for line in lines)
    assert lines[-1] == f"  look closer: drill diagnose {healthy.bundle}"


def test_a_wrong_value_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """The same errors as on the command line."""
    with pytest.raises(UsageError, match="outside the world"):
        run_drill("fr_hang", culprit=9, out=tmp_path / "runs")

    assert not (tmp_path / "runs").exists()
