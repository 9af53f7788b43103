"""Megatron's iteration lines, timers in all three options, straggler report and saves."""

import math
from pathlib import Path

import pytest

from harness.diagnose.signals.formats.read import read_foreign
from tests.diagnose.signals.formats.reading import SAMPLES, by_step, of_rank, read_bytes

MINMAX = SAMPLES / "megatron" / "minmax.log"
ALL = SAMPLES / "megatron" / "all.log"
ITERATION = (
    " [2026-08-08 03:12:44.118201] iteration     1370/  100000 | consumed samples:       701440 |"
    " elapsed time per iteration (ms): 4812.3 | throughput per GPU (TFLOP/s/GPU): 411.2 |"
    " learning rate: 2.987E-04 | global batch size:   512 | lm loss: 2.104E+00 | loss scale: 1.0 |"
    " grad norm: 0.812 | num zeros: 1834 | params norm: 2731.402 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |"
)
WANTED = {
    "consumed_samples": 701440.0,
    "step_time_s": 4.8123,
    "tflops": 411.2,
    "lr": 2.987e-4,
    "loss": 2.104,
    "loss_scale": 1.0,
    "grad_norm": 0.812,
    "num_zeros_in_grad": 1834.0,
    "param_norm": 2731.402,
    "skipped": 0.0,
}


def test_the_last_rank_of_the_stated_world_prints_the_iterations() -> None:
    """The size stands in the arguments; a record that is wrapped over three lines is cited by its first."""
    foreign = read_foreign([MINMAX])
    columns = of_rank(foreign, 15)

    assert foreign.world_size == 16
    assert columns.line.tolist() == [3, 13, 18]
    assert columns.t[0] == pytest.approx(1786158764.118201)
    assert by_step(columns)[1370] == pytest.approx(WANTED)


@pytest.mark.parametrize("width", [60, 80, 81, 97, 120, 133])
def test_a_terminal_may_wrap_the_record_anywhere(tmp_path: Path, width: int) -> None:
    """Also inside a key or a number."""
    parts = [ITERATION[i : i + width] for i in range(0, len(ITERATION), width)]

    assert by_step(of_rank(read_bytes(tmp_path, "\n".join(parts).encode() + b"\n"), 0)) == {
        1370: pytest.approx(WANTED)
    }


@pytest.mark.parametrize(("prefix", "rank"), [("[rank6]:", 6), ("[default7]:", 7), ("11: ", 11), ("", 0)])
def test_without_a_world_size_the_prefix_says_who_printed(tmp_path: Path, prefix: str, rank: int) -> None:
    """A label of the launcher is taken for want of better, and that is said."""
    foreign = read_bytes(tmp_path, (prefix + ITERATION + "\n").encode())

    assert by_step(of_rank(foreign, rank)) == {1370: pytest.approx(WANTED)}
    stated = prefix.startswith("[rank")
    note = f"job.log: nothing states the global rank that printed the iterations; taken as {rank}"
    assert foreign.complaints == (() if stated else (note,))


def test_a_rank_in_the_file_name_is_believed(tmp_path: Path) -> None:
    """But not a node's or a local rank's."""
    assert read_bytes(tmp_path / "a", ITERATION.encode(), "log_rank_3.txt").columns[0].rank == 3
    assert read_bytes(tmp_path / "b", ITERATION.encode(), "node_rank_3.txt").columns[0].rank == 0


def test_what_stands_behind_the_last_bar_is_not_believed(tmp_path: Path) -> None:
    """A torn last line: the number may go on."""
    columns = of_rank(read_bytes(tmp_path, ITERATION.split("2.3 |")[0].encode()), 0)

    assert by_step(columns) == {1370: {"consumed_samples": 701440.0}}


def test_an_iteration_with_a_nan_has_a_loss_that_is_not_finite() -> None:
    """Megatron leaves the loss out then, and counts; the gradient's norm says it too."""
    values = by_step(of_rank(read_foreign([MINMAX]), 15))[1371]

    assert (values["loss"], values["grad_norm"], values["skipped"]) == (math.inf, math.inf, 1.0)


def test_an_older_wording_without_colons_and_date(tmp_path: Path) -> None:
    """No time, the same fields."""
    text = " iteration       20/     100 | elapsed time per iteration (ms): 512.5 |"
    text += " learning rate 1.5E-04 | lm loss 7.2E+00 |"

    columns = of_rank(read_bytes(tmp_path, text.encode() + b"\n"), 0)

    assert math.isnan(columns.t[0])
    assert by_step(columns)[20] == pytest.approx({"step_time_s": 0.5125, "lr": 1.5e-4, "loss": 7.2})


def test_timers_of_the_least_and_the_greatest() -> None:
    """In seconds, of the iteration before; the ranks are not named."""
    rows = {row.name: row for row in read_foreign([MINMAX]).timers}

    row = rows["all-grads-sync"]
    assert (row.step, row.unit, row.file, row.line) == (1370, "s", "minmax.log", 9)
    assert (row.min, row.max) == pytest.approx((0.012, 0.3105))
    assert (row.min_rank, row.max_rank) == (None, None)
    assert math.isnan(rows["optimizer"].min)
    assert rows["optimizer"].max == pytest.approx(0.06125)


def test_the_straggler_report_names_ranks() -> None:
    """Milliseconds into seconds, and the milliwatts that it calls W into watts."""
    rows = {row.name: row for row in read_foreign([MINMAX]).timers}

    assert (rows["Rtt"].max, rows["Rtt"].max_rank, rows["Rtt"].unit) == (pytest.approx(1.57032), 7, "s")
    assert (rows["Clk"].min, rows["Clk"].min_rank, rows["Clk"].unit) == (1320.0, 7, "MHz")
    assert (rows["Pwr"].max, rows["Pwr"].unit) == (pytest.approx(669.787), "W")
    assert (rows["Tmp"].unit, rows["Utl"].unit, rows["Etpt"].unit) == ("C", "%", "TF")


def test_the_list_of_the_slowest_gives_a_row_a_rank() -> None:
    """Lowest throughput first."""
    rows = [row for row in read_foreign([MINMAX]).timers if row.name == "Etpt lowest"]

    assert [(row.min_rank, row.min) for row in rows] == [(7, 560.82), (6, 590.10)]


def test_a_report_torn_in_the_middle_keeps_its_halves(tmp_path: Path) -> None:
    """The greatest was cut off."""
    (row,) = read_bytes(tmp_path, b"[2026-08-08 03:12:44] | MnRtt/Rnk: 10.00ms/3 | MxRtt/Rnk: 12.5").timers

    assert (row.min, row.min_rank, row.max_rank) == (pytest.approx(0.01), 3, None)
    assert math.isnan(row.max)


def test_timers_of_all_ranks_are_every_rank_s_own_times() -> None:
    """The batch generator's time is inside the forward's, and taken off; lines of others stand between."""
    foreign = read_foreign([ALL])

    values = [by_step(of_rank(foreign, rank))[10] for rank in range(4)]
    assert [v["compute_s"] for v in values] == pytest.approx([0.2951, 0.2951, 0.3751, 0.2951])
    assert [v["comm_wait_s"] for v in values] == pytest.approx([0.0501, 0.0501, 0.0051, 0.0501])
    assert [v["data_wait_s"] for v in values] == pytest.approx([0.0051] * 4)
    assert values[3]["step_time_s"] == 0.5
    row = next(row for row in foreign.timers if row.name == "forward-compute" and row.step == 20)
    assert (row.min_rank, row.max_rank) == (0, 2)


def test_ranks_below_a_lost_timer_s_name_are_not_the_timer_before_s(tmp_path: Path) -> None:
    """They start again from 0."""
    text = (
        ALL.read_text().replace("3:   backward-compute:\n", "").replace("rank  3: 100.10", "rank  3 1?0.10")
    )

    columns = read_bytes(tmp_path, text.encode())

    assert all("compute_s" not in c.values for c in columns.columns)


def test_a_save_is_timed_by_its_timer() -> None:
    """Of the iteration that was saved."""
    values = by_step(of_rank(read_foreign([MINMAX]), 15))

    assert values[1371]["ckpt_duration_s"] == pytest.approx(24.89513)
    assert "ckpt_duration_s" not in values[1370]


def test_a_save_that_never_ended_is_where_rank_0_was() -> None:
    """Nothing came after it."""
    span = read_foreign([MINMAX]).open_spans[0]

    assert (span.name, span.step, span.line) == ("save-checkpoint", 1372, 21)


def test_a_save_that_runs_beside_the_training_is_not_open(tmp_path: Path) -> None:
    """Iterations went on."""
    text = f"saving checkpoint at iteration    1360 to /ckpt\n{ITERATION}\n"

    assert read_bytes(tmp_path, text.encode()).open_spans == {}


def test_a_header_and_its_only_timer_may_stand_on_one_line(tmp_path: Path) -> None:
    """As older versions print it."""
    timer = "(min, max) time across ranks (ms):save-checkpoint ................: (1658.80, 1658.85)"

    (row,) = read_bytes(tmp_path, f"{ITERATION}\n{timer}\n".encode()).timers

    assert (row.name, row.max) == ("save-checkpoint", pytest.approx(1.65885))
