"""DeepSpeed's step lines, throughput and timers without a step number."""

import math
from pathlib import Path

import pytest

from harness.diagnose.signals.formats.read import read_foreign
from tests.diagnose.signals.formats.reading import SAMPLES, by_step, of_rank, read_bytes

ENGINE = SAMPLES / "deepspeed" / "engine.log"
PIPELINE = SAMPLES / "deepspeed" / "pipeline.log"


def progress(step: int, skipped: int = 0, rank: int = 0) -> str:
    head = f"[2026-01-01 00:00:00,250] [INFO] [logging.py:96:log_dist] [Rank {rank}] "
    return f"{head}step={step}, skipped={skipped}, lr=[0.0001], mom=[(0.9, 0.999)]"


def times(compute_ms: float) -> str:
    backward = "bwd: 60.00 | bwd_inner: 0.00 | bwd_allreduce: 20.00"
    return f"[Rank 0] time (ms) | fwd: {compute_ms:.2f} | {backward} | step: 1.50"


def test_step_and_throughput_lines_are_one_record() -> None:
    """Global rank, learning rate, peak memory; throughput as an extra column."""
    foreign = read_foreign([ENGINE])
    columns = of_rank(foreign, 0)
    values = by_step(columns)

    assert foreign.world_size == 8
    assert columns.format == "deepspeed"
    assert (values[2]["lr"], values[2]["samples_per_s"]) == (1e-4, 26.2)
    assert values[2]["mem_allocated_peak"] == 2.5 * 2**30
    assert columns.t[list(columns.step).index(2)] == pytest.approx(1767225602.25)


def test_skipped_steps_are_counted_since_the_record_before() -> None:
    """DeepSpeed prints the sum since the start."""
    values = by_step(of_rank(read_foreign([ENGINE]), 0))

    assert (values[2]["skipped"], values[4]["skipped"]) == (0.0, 1.0)


def test_timers_find_their_steps_by_counting() -> None:
    """Every second step has a line of its own, each has timers; sums over micro-batches, in seconds."""
    values = by_step(of_rank(read_foreign([ENGINE]), 0))

    assert [values[step]["compute_s"] for step in (1, 2, 3, 4)] == pytest.approx([0.062, 0.064, 0.066, 0.068])
    assert values[3]["comm_wait_s"] == pytest.approx(0.02)


def test_timers_that_cannot_be_counted_are_not_guessed(tmp_path: Path) -> None:
    """Three lines between step 2 and step 6: only the one behind step 2's own line is certain."""
    lines = [progress(2), times(1), times(2), times(3), progress(6), times(4)]

    values = by_step(of_rank(read_bytes(tmp_path, "\n".join(lines).encode() + b"\n"), 0))

    assert {step: v.get("compute_s") for step, v in values.items()} == {2: 0.001, 6: 0.004}


def test_lines_said_twice_count_once(tmp_path: Path) -> None:
    """Two handlers: neither timers nor skipped steps are counted double."""
    doubled = b"".join(line * 2 for line in ENGINE.read_bytes().splitlines(keepends=True))

    assert by_step(of_rank(read_bytes(tmp_path, doubled), 0)) == by_step(of_rank(read_foreign([ENGINE]), 0))


def test_micro_timers_alone_serve_where_a_step_has_one_micro_batch(tmp_path: Path) -> None:
    """Older versions print no sums."""
    micro = "time (ms) | fwd_microstep: 2.00 | bwd_inner_microstep: 3.00 | bwd_allreduce_microstep: 2.00"
    lines = [line for step in (1, 2, 3) for line in (progress(step), f"{micro} | step_microstep: {step}.00")]

    values = by_step(of_rank(read_bytes(tmp_path, "\n".join(lines).encode() + b"\n"), 0))

    assert [values[step]["compute_s"] for step in (1, 2, 3)] == pytest.approx([0.005] * 3)


def test_the_pipeline_engine_s_line_and_a_restart() -> None:
    """Step time and loss; a step number that goes back begins an attempt, a nan is recorded."""
    foreign = read_foreign([PIPELINE])

    assert of_rank(foreign, 0, 0).step.tolist() == [10, 20, 30]
    again = by_step(of_rank(foreign, 0, 1))
    assert (again[20]["loss"], again[20]["step_time_s"]) == (2.251, 1.234)
    assert again[30]["loss"] == math.inf


def test_ranks_are_global(tmp_path: Path) -> None:
    """Each rank that is printed has its own record."""
    lines = [progress(1, rank=0), progress(1, rank=9)]

    assert [c.rank for c in read_bytes(tmp_path, "\n".join(lines).encode()).columns] == [0, 9]
