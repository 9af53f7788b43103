"""torchtitan's structured log: spans into steps, milliseconds into seconds, and what was left open."""

import json
from pathlib import Path

import pytest

from harness.diagnose.signals.formats.read import read_foreign
from tests.diagnose.signals.formats.reading import SPANS, by_step, of_rank, read_bytes

HUNG = SPANS / "trainer.global_rank_1.20260101-000000-P0V4AB.jsonl"
WHOLE = SPANS / "trainer.global_rank_0.20260101-000000-K3X9QZ.jsonl"


def event(name: str, t: float, *, rank: int = 0, step: int | None = 1, **more: object) -> str:
    record = {"rank": rank, "global_rank": rank, "source": "trainer", "step": step, "time_us": int(t * 1e6)}
    return json.dumps({**record, "log_type": "event", "log_type_name": name, "seq_id": int(t * 1e3), **more})


def steps(first: int, last: int, at: float, rank: int = 0) -> list[str]:
    lines = []
    for step in range(first, last + 1):
        lines.append(event("step_start", at, rank=rank, step=step))
        at += 1.0
        lines.append(event("step_end", at, rank=rank, step=step, value=1000.0))
    return lines


def log(folder: Path, name: str, lines: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")


def test_a_step_is_its_span_in_seconds() -> None:
    """The end of the span is the time of the record, and its line the one that is cited."""
    columns = of_rank(read_foreign([SPANS]), 0)

    assert columns.format == "torchtitan"
    assert columns.file == WHOLE.name
    assert columns.t[0] == pytest.approx(1767225601.76022)
    assert columns.line.tolist() == [22, 41, 60, 79]
    assert by_step(columns)[1]["step_time_s"] == pytest.approx(0.86022)


def test_waits_of_all_micro_batches_of_a_step_add_up() -> None:
    """Two fetches of 16 ms are 32 ms."""
    assert by_step(of_rank(read_foreign([SPANS]), 1))[2]["data_wait_s"] == pytest.approx(0.032)


def test_forward_and_backward_hold_communication_and_are_no_compute_time() -> None:
    """The span is an extra column."""
    values = by_step(of_rank(read_foreign([SPANS]), 0))[1]

    assert values["fwd_bwd_s"] == pytest.approx(0.8)
    assert "compute_s" not in values


def test_a_checkpoint_span_in_which_nothing_was_saved_is_no_save() -> None:
    """The span runs after every step; only step 2 saved."""
    columns = of_rank(read_foreign([SPANS]), 0)

    assert {step for step, values in by_step(columns).items() if "ckpt_duration_s" in values} == {2}
    assert by_step(columns)[2]["ckpt_duration_s"] == pytest.approx(2.5)


def test_the_span_that_a_rank_never_left_is_remembered() -> None:
    """Rank 1 hangs in the second fetch of step 4; the step around it is not the innermost."""
    foreign = read_foreign([SPANS])

    assert set(foreign.open_spans) == {1}
    span = foreign.open_spans[1]
    assert (span.name, span.step, span.file) == ("fetching_batch", 4, HUNG.name)
    assert "fetching_batch_start" in HUNG.read_text().splitlines()[span.line - 1]
    assert foreign.complaints == ()


def test_a_span_whose_end_is_torn_was_left(tmp_path: Path) -> None:
    """The torn last line still says which span it ends, but gives no duration."""
    lines = HUNG.read_bytes().splitlines()
    end = json.loads(lines[-1])
    end["log_type_name"] = "fetching_batch_end"
    torn = json.dumps({**end, "value": 16.0, "message": "torn"})[:-9]

    foreign = read_bytes(tmp_path, b"\n".join([*lines, torn.encode()]), HUNG.name)

    assert foreign.open_spans[1].name == "step"
    assert foreign.complaints == (f"{HUNG.name}: 1 line is damaged",)


def test_a_missing_duration_is_the_time_between_start_and_end(tmp_path: Path) -> None:
    """Nested spans of one name and spans of other tasks do not mix."""
    lines = [
        event("step_start", 10.0),
        event("fetching_batch_start", 10.0, task_name="Task-1"),
        event("fetching_batch_start", 10.1, task_name="Task-2"),
        event("fetching_batch_end", 10.3, task_name="Task-1"),
        event("fetching_batch_end", 10.8, task_name="Task-2"),
        event("step_end", 12.0),
    ]
    log(tmp_path, "x.jsonl", lines)

    values = by_step(of_rank(read_foreign([tmp_path]), 0))[1]

    assert values["step_time_s"] == pytest.approx(2.0)
    assert values["data_wait_s"] == pytest.approx(0.3 + 0.7)


def test_a_step_that_ended_by_an_exception_is_no_record(tmp_path: Path) -> None:
    """The span ends all the same, behind an error."""
    lines = [*steps(1, 2, 10.0), event("step_start", 12.0, step=3), event("step_error", 12.5, step=3)]
    log(tmp_path, "x.jsonl", [*lines, event("step_end", 12.6, step=3, value=600.0)])

    assert of_rank(read_foreign([tmp_path]), 0).step.tolist() == [1, 2]


def test_scalars_with_the_name_of_a_field_are_that_field(tmp_path: Path) -> None:
    """A loss that was logged beside the spans."""
    scalar = event("metric_value", 10.5, log_type="instant", event_name="train.loss", value=2.5)
    log(tmp_path, "x.jsonl", [steps(1, 1, 10.0)[0], scalar, steps(1, 1, 10.0)[1]])

    assert by_step(of_rank(read_foreign([tmp_path]), 0))[1]["loss"] == 2.5


def test_events_said_twice_count_once(tmp_path: Path) -> None:
    """Two handlers write each event."""
    lines = [line for line in WHOLE.read_text().splitlines() for _ in range(2)]
    log(tmp_path, WHOLE.name, lines)

    assert by_step(of_rank(read_foreign([tmp_path]), 0)) == by_step(of_rank(read_foreign([WHOLE]), 0))


def test_a_process_that_came_back_is_another_attempt_on_all_ranks(tmp_path: Path) -> None:
    """Each process writes its own file; of rank 1 only that of the second attempt is left."""
    log(tmp_path, "trainer.global_rank_0.a.jsonl", steps(1, 5, 1000.0))
    log(tmp_path, "trainer.global_rank_0.b.jsonl", steps(6, 9, 1200.0))
    log(tmp_path, "trainer.global_rank_1.b.jsonl", steps(6, 9, 1200.1, rank=1))

    foreign = read_foreign([tmp_path])

    assert [(c.rank, c.attempt, c.step[0]) for c in foreign.columns] == [(0, 0, 1), (0, 1, 6), (1, 1, 6)]


def test_ranks_of_another_program_are_left_out(tmp_path: Path) -> None:
    """A trainer and a generator number their ranks each from 0."""
    log(tmp_path, "trainer.global_rank_0.jsonl", steps(1, 3, 1000.0))
    other = [line.replace('"trainer"', '"generator"') for line in steps(1, 50, 1000.0)]
    log(tmp_path, "generator.global_rank_0.jsonl", other)

    foreign = read_foreign([tmp_path])

    assert [len(c) for c in foreign.columns] == [3]
    assert foreign.complaints == ("structured logs: ranks of generator are not those of trainer, left out",)


@pytest.mark.parametrize(
    "damage", [b"\0\0\0", b"{", b'{"rank": 1e99, "log_type_name": 5}', b"[1, 2]", b"\xff\xfe", b""]
)
def test_a_damaged_line_takes_nothing_with_it(tmp_path: Path, damage: bytes) -> None:
    """Also lines that are JSON and no record, and blank ones: the numbers of the lines stay true."""
    lines = WHOLE.read_bytes().splitlines()

    columns = of_rank(read_bytes(tmp_path, b"\r\n".join([*lines[:30], damage, *lines[30:]]), WHOLE.name), 0)

    assert columns.line.tolist() == [22, 42, 61, 80]
    assert by_step(columns) == by_step(of_rank(read_foreign([WHOLE]), 0))
