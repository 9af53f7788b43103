"""The table of a comparison fits a screen and shows what matters first."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from harness.model.comparison import Bucket, ComparedResult, Comparison, RankBuckets
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Category, Confidence, Kind
from harness.report.comparison import MAX_RANKS, show_comparison

DRILL = (sys.executable, "-m", "harness.cli", "diagnose")
SAMPLES = Path(__file__).parent.parent / "diagnose" / "traces" / "samples"


def shown(
    rows: tuple[Bucket, ...], ranks: tuple[RankBuckets, ...] = (), culprits: tuple[int, ...] = ()
) -> str:
    diagnosis = Diagnosis(
        Kind.DATA_STARVED, Category.DATA, Confidence.LIKELY, "Steps take longer.", culprits=culprits
    )
    comparison = Comparison("traces", "seconds a step", "old/trace", "new/trace", rows, ranks)
    out = io.StringIO()
    show_comparison(Console(file=out, width=100), ComparedResult(diagnosis, comparison))
    return out.getvalue()


def test_each_part_with_its_difference() -> None:
    """Then, now, the difference with its sign, and its share of then."""
    text = shown((Bucket("data_wait", 0.5, 1.5), Bucket("step", 4.0, 5.0)))

    lines = [line.split() for line in text.splitlines()]
    assert ["data_wait", "0.500", "1.500", "+1.000", "+200.0", "%"] in lines
    assert ["step", "4.000", "5.000", "+1.000", "+25.0", "%"] in lines
    assert "Steps take longer." in text
    assert "new/trace" in text
    assert "old/trace" in text


def test_short_steps_are_shown_in_milliseconds() -> None:
    """No figure begins with zeros."""
    text = shown((Bucket("data_wait", 0.0005, 0.0015), Bucket("step", 0.004, 0.005)))

    assert "milliseconds a step" in text
    assert ["step", "4.000", "5.000", "+1.000", "+25.0", "%"] in [line.split() for line in text.splitlines()]


def test_what_was_not_measured_is_a_dash() -> None:
    """A part that one side lacks has no difference."""
    text = shown((Bucket("comm_exposed", None, 1.5), Bucket("step", 4.0, 5.0)))

    assert ["comm_exposed", "-", "1.500", "-"] in [line.split() for line in text.splitlines()]


@pytest.mark.parametrize("culprit", [0, 40, 99])
def test_of_many_ranks_the_accused_and_the_most_changed(culprit: int) -> None:
    """A hundred ranks fit: the accused is among those shown, and the number of the others is said."""
    ranks = tuple(
        RankBuckets(rank, (Bucket("compute", 1.0, 1.0 + rank / 1000), Bucket("step", 4.0, 5.0)))
        for rank in range(100)
    )
    text = shown((Bucket("compute", 1.0, 1.0), Bucket("step", 4.0, 5.0)), ranks, (culprit,))

    assert f"rank {culprit} " in text
    assert f"{100 - MAX_RANKS} more ranks" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_command_prints_a_screen() -> None:
    """Two sides of recorded traces: sentence, kind, table; exit code 0."""
    command = (*DRILL, str(SAMPLES / "late_rank"), "--baseline", str(SAMPLES / "then"))
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    lines = done.stdout.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 100
    assert "culprit: rank 1" in done.stdout
    assert any(line.startswith("straggler ") for line in lines)


def test_json_is_the_diagnosis_with_the_comparison() -> None:
    """One document: the keys of a diagnosis, and one more."""
    command = (*DRILL, str(SAMPLES / "slow_loader"), "--baseline", str(SAMPLES / "then"), "--json")
    document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    comparison = document.pop("comparison")
    assert set(document) == set(Diagnosis.__dataclass_fields__)
    assert (document["schema"], document["kind"]) == ("drill/diagnosis/1", "data_starved")
    assert comparison["what"] == "traces"
    assert {row["name"] for row in comparison["rows"]} >= {"compute", "data_wait", "step"}
    assert [ranked["rank"] for ranked in comparison["ranks"]] == [0, 1]
    for cited in document["evidence"]:
        assert (SAMPLES / "then" / cited["file"]).exists()


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("then", "--baseline", "missing"), 4, "missing does not exist"),
        (("record.py", "--baseline", "then"), 4, "nothing readable"),
        (("then", "--baseline", "then", "--arrivals"), 2, "--baseline compares two sides"),
        (("then", "--baseline", "then", "--show-rank", "0"), 2, "--baseline compares two sides"),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, word: str) -> None:
    """Nothing readable is 4, options that do not fit are 2; no traceback."""
    done = subprocess.run((*DRILL, *arguments), cwd=SAMPLES, capture_output=True, text=True)

    assert done.returncode == code
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_an_open_answer_is_exit_3(tmp_path: Path) -> None:
    """The part that grew is known, the reason is not."""
    from tests.diagnose.traces.generate import Work, write_side

    write_side(tmp_path / "then", {0: Work()}, 1)
    write_side(tmp_path / "now", {0: Work(bubble_us=900.0)}, 2)
    command = (*DRILL, str(tmp_path / "now"), "--baseline", str(tmp_path / "then"), "--json")
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 3
    assert json.loads(done.stdout)["kind"] == "inconclusive"
    assert json.loads(done.stdout)["next_steps"]
