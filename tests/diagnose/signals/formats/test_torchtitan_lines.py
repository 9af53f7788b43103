"""torchtitan's metric line, as terminals, launchers and restarts leave it."""

import math
from pathlib import Path

import pytest

from harness.diagnose.signals.formats.read import read_foreign
from tests.diagnose.signals.formats.reading import SAMPLES, SPANS, by_step, of_rank, read_bytes

STDOUT = SAMPLES / "torchtitan" / "stdout.log"
METRICS = (
    "step: %d  loss:  2.10412  grad_norm:  0.8123  memory: 61.38GiB(77.42%%)  "
    "tps: 3,412  tflops: 413.9  mfu: 41.85%%"
)
WANTED = {
    "loss": 2.10412,
    "grad_norm": 0.8123,
    "mem_reserved_peak": 61.38 * 2**30,
    "tps": 3412.0,
    "tflops": 413.9,
    "mfu": 41.85,
}


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("", 0),
        ("[titan] 2026-01-01 00:00:00,123 - root - INFO - ", 0),
        ("[rank5]:[titan] 2026-01-01 00:00:00,123 - root - INFO - ", 5),
        ("[default3]:", 3),
        ("11: ", 11),
        ("[1,7]<stdout>:", 7),
        ("\x1b[31m", 0),
        ("[31m", 0),
        (" 43%|####      | 430/1000 [00:10<00:20]\r", 0),
    ],
)
def test_the_line_is_found_behind_any_prefix(tmp_path: Path, prefix: str, rank: int) -> None:
    """Colours with and without their escape, labels of launchers, a progress bar glued in front."""
    columns = of_rank(read_bytes(tmp_path, (prefix + METRICS % 1370 + "\n").encode()), rank)

    assert by_step(columns) == {1370: pytest.approx(WANTED)}
    assert columns.line.tolist() == [1]


def test_the_sample_with_colours_validation_and_a_loss_that_is_not_finite() -> None:
    """Validation is no step; N/A is absent; nan and inf are recorded as infinities."""
    columns = of_rank(read_foreign([STDOUT]), 0)
    values = by_step(columns)

    assert columns.step.tolist() == [1, 10, 20, 30]
    assert columns.t[0] == pytest.approx(1767225602.1)
    assert "mfu" not in values[20]
    assert (values[30]["loss"], values[30]["grad_norm"]) == (math.inf, math.inf)


def test_a_save_is_told_by_the_line_that_reports_its_end() -> None:
    """It belongs to the step printed last."""
    assert by_step(of_rank(read_foreign([STDOUT]), 0))[1]["ckpt_duration_s"] == 2.49


def test_a_save_without_an_end_is_where_the_rank_was(tmp_path: Path) -> None:
    """The log ends in the save."""
    text = STDOUT.read_text().split("Finished saving")[0]

    span = read_bytes(tmp_path, text.encode()).open_spans[0]

    assert (span.name, span.step, span.line) == ("checkpoint_save", 1, 3)


def test_a_number_cut_by_the_end_of_the_file_is_not_believed(tmp_path: Path) -> None:
    """3,412 tokens a second may have been 3,412,000."""
    columns = of_rank(read_bytes(tmp_path, (METRICS % 5).split("  tflops")[0].encode()), 0)

    assert columns.step.tolist() == [5]
    assert "tps" not in columns.values


def test_a_step_number_that_goes_back_begins_an_attempt(tmp_path: Path) -> None:
    """One file, a restart in the middle, no dates."""
    other = METRICS.replace("2.10412", "2.2")
    lines = [METRICS % 10, METRICS % 20, METRICS % 20, other % 10, other % 20]

    foreign = read_bytes(tmp_path, "\n".join(lines).encode())

    assert [(c.attempt, c.step.tolist()) for c in foreign.columns] == [(0, [10, 20]), (1, [10, 20])]


def test_ranks_that_print_in_turns_are_no_restart(tmp_path: Path) -> None:
    """Lines of one step without a rank, a moment apart: the first counts."""
    at = "[titan] 2026-01-01 00:00:0%d,000 - root - INFO - "
    lines = [at % 1 + METRICS % 1, at % 3 + METRICS % 2, at % 3 + (METRICS % 1).replace("61.38", "50.00")]

    foreign = read_bytes(tmp_path, "\n".join(lines).encode())

    assert [c.step.tolist() for c in foreign.columns] == [[1, 2]]
    assert by_step(foreign.columns[0])[1]["mem_reserved_peak"] == pytest.approx(61.38 * 2**30)


def test_metrics_and_spans_of_a_rank_are_one_record() -> None:
    """The structured log has most steps and is cited; a step that only stdout has cites no line."""
    columns = of_rank(read_foreign([SAMPLES / "torchtitan"]), 0)
    values = by_step(columns)

    assert columns.file.startswith("structured_logs/")
    assert (values[1]["loss"], values[1]["step_time_s"]) == (12.2713, pytest.approx(0.86022))
    assert dict(zip(columns.step.tolist(), columns.line.tolist(), strict=True))[10] == 0
    assert "ckpt_duration_s" not in values[1]


def test_names_are_relative_to_the_folders_given() -> None:
    """With several folders, each name begins with its folder's."""
    names = {c.file for c in read_foreign([SPANS, SAMPLES / "deepspeed"]).columns}

    assert {name.split("/")[0] for name in names} == {"structured_logs", "deepspeed"}
