"""What the newest records lead to, rank by rank."""

import math

import pytest

from harness.monitor import board as limits
from harness.monitor.board import Board
from harness.monitor.records import RecordReader, SpanRecord, StepRecord

from .made import record


def read(line: bytes, attempt: int = 0) -> StepRecord:
    """A record as the exporter reads it."""
    found = RecordReader().read(line, attempt)
    assert isinstance(found, StepRecord)
    return found


def board(*lines: bytes, attempt: int = 0, into: Board | None = None) -> Board:
    """A board after some records that arrived when they were written."""
    made = into or Board()
    for line in lines:
        found = read(line, attempt)
        made.add(found, found.t)
    return made


def test_the_newest_value_of_each_field_is_kept() -> None:
    """Also of a field that the newest record lacks: memory and saves are not in every one."""
    values = board(record(1, rss_bytes=7, loss=2.0), record(2, loss=3.0)).values

    assert (values["train_loss"][0], values["train_rss_bytes"][0], values["train_step"][0]) == (3.0, 7, 2)


@pytest.mark.parametrize("loss", ["NaN", "Infinity", "-Infinity", math.nan])
def test_a_loss_that_is_no_number_is_told_and_counted(loss: object) -> None:
    """Words and bare NaN alike; the count remembers what the newest record has forgotten."""
    seen = board(record(1), record(2, loss=loss))
    during = seen.values["train_loss_is_finite"][0]
    board(record(3), into=seen)

    assert during == 0
    assert seen.values["train_loss_is_finite"][0] == 1
    assert seen.values["train_loss_not_finite_total"][0] == 1


def test_counters_begin_at_zero() -> None:
    """`increase` does not see the first value of a series, so that must not be the first failure."""
    values = board(record(1)).values

    assert values["train_ckpt_failed_total"] == values["train_restart_total"] == {0: 0.0}
    assert values["train_data_position_errors_total"] == values["train_loss_not_finite_total"] == {0: 0.0}


def test_a_restart_forgets_what_the_dead_process_measured() -> None:
    """Its memory and loss are gone; when it last finished a step is still when the job did."""
    seen = board(record(9, t=500.0, rss_bytes=7))
    seen.start(0, 1)
    values = seen.values

    assert 0 not in values["train_rss_bytes"] and 0 not in values["train_loss"]
    assert values["train_last_step_completed_timestamp_seconds"][0] == 500.0
    assert values["train_restart_total"][0] == 1


def test_a_late_line_of_the_dead_process_changes_nothing() -> None:
    """Once the new start is there, the old one's last lines are history."""
    seen = board(record(9))
    seen.start(0, 1)
    board(record(10, loss=8.0), into=seen)

    assert 0 not in seen.values["train_loss"]


@pytest.mark.parametrize("wrong", [-3600.0, 3600.0])
def test_a_clock_that_jumps_neither_wakes_nor_silences(wrong: float) -> None:
    """A record whose time is far from its arrival counts as of its arrival, and that is said."""
    seen = Board()
    seen.add(read(record(1, t=5000.0 + wrong)), arrived=5000.0)

    assert seen.values["train_last_step_completed_timestamp_seconds"][0] == 5000.0
    assert seen.clock_jumps == 1


def test_p50_is_over_the_recent_steps_of_all_ranks() -> None:
    """One slow rank among three, and a slow first step long ago, do not move it."""
    seen = board(record(0, rank=0, step_time_s=90.0))
    for step in range(1, limits.RECENT_STEPS + 1):
        for rank, took in enumerate((1.0, 1.1, 5.0)):
            board(record(step, rank, step_time_s=took), into=seen)

    assert seen.step_time_p50() == 1.1


def test_a_position_that_goes_back_is_counted() -> None:
    """Within one start samples come once."""
    seen = board(record(1, consumed_samples=4), record(2, consumed_samples=8), record(3, consumed_samples=4))

    assert seen.values["train_data_position_errors_total"][0] == 1


@pytest.mark.parametrize(("position", "errors"), [(8, 0), (4, 1)])
def test_a_resumed_step_must_stand_where_it_stood(position: int, errors: int) -> None:
    """Going back to the checkpoint is no error; reading other samples at a step is one, counted once."""
    seen = board(*(record(s, consumed_samples=4 * s) for s in (1, 2, 3, 4)))
    seen.start(0, 1)
    board(
        record(2, consumed_samples=position), record(3, consumed_samples=position + 4), attempt=1, into=seen
    )

    assert seen.values["train_data_position_errors_total"][0] == errors


def test_slow_saves_are_counted_in_a_row() -> None:
    """Against the run's own median; a quick one ends the row."""
    seen = board(*(record(s, ckpt_duration_s=10.0) for s in range(3)))
    rows = []
    for took in (21.0, 30.0, 10.0):
        board(record(9, ckpt_duration_s=took), into=seen)
        rows.append(seen.values["train_ckpt_slow_saves"][0])

    assert rows == [1, 2, 0]


def test_the_job_is_as_far_as_its_slowest_rank() -> None:
    """One rank that stands still among moving ones is the one that counts."""
    progress = board(record(5, 0, t=100.0), record(9, 1, t=140.0)).progress(None)

    assert progress is not None and (progress.step, progress.at, progress.ranks) == (5, 100.0, 2)


def test_ranks_that_a_smaller_restart_left_out_are_not_late() -> None:
    """After a restart with one rank fewer only the new start's ranks count."""
    seen = board(record(5, 0, t=100.0), record(5, 1, t=100.0))
    progress = board(record(6, 0, t=140.0), attempt=1, into=seen).progress(None)

    assert progress is not None and (progress.at, progress.ranks) == (140.0, 1)


def test_too_many_of_anything_are_refused_and_counted() -> None:
    """A hundred thousand ranks, fields and span names cost what the limits allow."""
    seen = Board()
    for i in range(100_000):
        seen.add(StepRecord(i, 0, 1.0, 1, {}), 1.0)
        seen.add_span(SpanRecord(0, 1.0, 1, f"span {i}", 1.0), 0, 1.0)
    seen.add(StepRecord(0, 0, 1.0, 1, {f"field{i}": 1.0 for i in range(100_000)}), 1.0)

    assert len(seen.values["train_step"]) == 0 and len(list(seen.ranks())) == limits.MOST_RANKS
    assert len(seen.values) < 2 * limits.MOST_FIELDS and len(seen.spans) == limits.MOST_SPANS
    assert seen.refused["ranks"] == 100_000 - limits.MOST_RANKS
    assert seen.refused["span names"] == 100_000 - limits.MOST_SPANS
    assert seen.refused["fields"] > 99_000


GARBAGE = (
    *(b"{", b"[]", b"7", b'{"t": 1}', b'{"t": "x", "step": 1, "rank": 0}', b"\xff\xfe\x00", b"[" * 100_000),
    *(
        b'{"t": 1, "step": 1.5, "rank": 0}',
        b'{"t": 1, "step": 1, "rank": -1}',
        b'{"t": NaN, "step": 1, "rank": 0}',
    ),
    *(
        b'{"t": 1, "step": true, "rank": 0}',
        b'{"log_type_name": "step_end"}',
        b'{"t":1,"step":1e300,"rank":0}',
    ),
)


@pytest.mark.parametrize("line", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_no_record(line: bytes) -> None:
    """Whatever a line holds, it is refused by the one error that is counted."""
    with pytest.raises(ValueError):
        RecordReader().read(line)


def test_spans_take_their_value_or_the_time_since_their_start() -> None:
    """torchtitan's spans: the value of an end is milliseconds; an end without either has no length."""
    reader = RecordReader()
    said = b'{"rank": 3, "step": 7, "time_us": %d, "log_type_name": "%s"%s}'
    reader.read(said % (1_000_000, b"fwd_bwd_start", b""))
    timed = reader.read(said % (3_500_000, b"fwd_bwd_end", b""))
    stated = reader.read(said % (4_000_000, b"step_end", b', "value": 1500.0'))
    lone = reader.read(said % (4_000_000, b"optim_end", b""))

    assert timed == SpanRecord(3, 3.5, 7, "fwd_bwd", 2.5)
    assert stated == SpanRecord(3, 4.0, 7, "step", 1.5)
    assert isinstance(lone, SpanRecord) and math.isnan(lone.seconds)
    assert reader.read(said % (5_000_000, b"metric_value", b"")) is None
