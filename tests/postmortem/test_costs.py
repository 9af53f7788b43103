"""What time costs."""

import json

import pytest
from click.testing import CliRunner

from harness.cli.cost import command
from harness.postmortem.costs import Fleet, Split, lost_share, mfu_point_s, young_interval_s

DAY = 86400.0


def test_a_thousand_cards() -> None:
    """1024 at 2.5: 2560 an hour; 67 minutes are 1143 GPU hours."""
    fleet = Fleet(1024, 2.5)

    assert fleet.dollars(3600) == 2560
    assert fleet.gpu_hours(67 * 60) == pytest.approx(1143.5, abs=0.1)


def test_an_mfu_point() -> None:
    """Of 42, in thirty days: 0.71 days."""
    assert mfu_point_s(0.42, 30 * DAY) / DAY == pytest.approx(0.714, abs=0.001)


def test_youngs_interval_loses_least() -> None:
    """45 s and three hours: sixteen minutes; a little more or less often loses more."""
    best = young_interval_s(45, 10800)

    assert best / 60 == pytest.approx(16.4, abs=0.1)
    assert all(lost_share(best, 45, 10800) < lost_share(f * best, 45, 10800) for f in (0.8, 0.95, 1.05, 1.5))


def test_what_is_unknown_is_not_counted() -> None:
    """And is named."""
    split = Split(detect=100, recompute=20)

    assert split.known_s == 120 and split.unknown == ("dump", "decide", "restart", "load")


def test_the_command_answers_the_usual_questions() -> None:
    """An MFU point, a hang with and without alerts, a checkpoint interval; in words and as JSON."""
    words = CliRunner().invoke(command, [], catch_exceptions=False).output
    said = json.loads(CliRunner().invoke(command, ["--json", "--gpus", "8"], catch_exceptions=False).output)

    for figure in ("61,440 a day", "43,886 USD", "1,252 USD", "every 16 min (Young)", "9.79%"):
        assert figure in words
    assert said["schema"] == "drill/cost/1" and said["fleet"]["gpus"] == 8


@pytest.mark.parametrize("wrong", ["0s", "-5m", "soon", "5w", "nan", ""])
def test_a_time_that_is_none(wrong: str) -> None:
    """Exit code 2, and how to give it."""
    done = CliRunner().invoke(command, ["--mtbf", wrong])

    assert done.exit_code == 2 and "--mtbf" in done.output
