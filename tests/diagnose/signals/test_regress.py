"""Two runs compared: `diagnose NOW --baseline THEN`, on made-up jobs' step records."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.diagnose.comparing import compare
from harness.model.comparison import ComparedResult
from harness.model.kinds import Confidence, Kind
from tests.diagnose.signals.made import Job, Record, since


def compared(now: Job, folder: Path, then: Job | None = None) -> ComparedResult:
    """A job against an earlier, healthy one; both long over, so that their records alone say no more."""
    before = (then or Job(seed=1)).write(folder / "then")
    return compare([now.write(folder / "now")], before)


def test_nothing_grew(tmp_path: Path) -> None:
    """Two healthy runs of the same job differ by noise."""
    result = compared(Job(seed=2), tmp_path)

    assert result.diagnosis.kind is Kind.HEALTHY
    assert {row.name for row in result.comparison.rows} >= {"step time", "compute", "data wait"}


@pytest.mark.parametrize("culprit", [0, 3, 7])
def test_a_rank_that_is_slow_from_the_start_is_told_by_its_past(culprit: int, tmp_path: Path) -> None:
    """Alone the run can only suspect it; against an earlier run of the same ranks it grew."""
    result = compared(Job(extra=since(0, culprit, seconds=0.05), seed=2), tmp_path)

    assert (result.diagnosis.kind, culprit in result.diagnosis.culprits + result.diagnosis.suspects) == (
        Kind.STRAGGLER,
        True,
    )
    grown = {r.rank: r.rows[1].grew_s for r in result.comparison.ranks}
    assert max(grown, key=lambda r: grown[r] or 0.0) == culprit


def test_data_that_became_slow_for_all(tmp_path: Path) -> None:
    """Data wait grew on all ranks alike."""
    result = compared(Job(data_s=0.012, seed=2), tmp_path)

    assert (result.diagnosis.kind, result.diagnosis.culprits) == (Kind.DATA_STARVED, ())


def test_a_network_that_became_slow(tmp_path: Path) -> None:
    """Exposed communication grew, computing did not."""
    result = compared(Job(exchange_s=0.05, seed=2), tmp_path)

    assert (result.diagnosis.kind, result.diagnosis.culprits) == (Kind.COMM_SLOW, ())


def test_computing_that_grew_everywhere_accuses_nobody(tmp_path: Path) -> None:
    """Clocks of all cards, or other code: what to look at is said, and no more."""
    result = compared(Job(compute_s=0.13, seed=2), tmp_path)

    assert (result.diagnosis.kind, result.diagnosis.culprits) == (Kind.INCONCLUSIVE, ())
    assert "clocks" in result.diagnosis.summary


def test_host_code_with_fragmented_memory(tmp_path: Path) -> None:
    """The rest of the step grew, and inactive bytes with it: the allocator."""

    def split(rank: int, step: int, record: Record) -> None:
        record["mem_inactive_split"] = 9 << 30

    now = Job(extra=since(0, *range(8), seconds=0.03), part="rest", change=split, seed=2)

    assert compared(now, tmp_path).diagnosis.kind is Kind.MEMORY_FRAGMENTATION


def test_saves_that_became_slow(tmp_path: Path) -> None:
    """Time in checkpoints, spread over all steps."""
    result = compared(
        Job(save_every=10, save_s=3.0, seed=2), tmp_path, Job(save_every=10, save_s=0.5, seed=1)
    )

    assert (result.diagnosis.kind, result.diagnosis.culprits) == (Kind.CHECKPOINT_SLOW, ())


def test_what_the_run_itself_shows_comes_first(tmp_path: Path) -> None:
    """A loss that is not finite is no matter of comparison."""

    def spoil(rank: int, step: int, record: Record) -> None:
        if rank == 2 and step >= 170:
            record["loss"] = "NaN"

    result = compared(Job(data_s=0.02, change=spoil, seed=2), tmp_path)

    assert (result.diagnosis.kind, result.diagnosis.culprits) == (Kind.LOSS_NOT_FINITE, (2,))


def beside(*ranks: int, took_s: float) -> Callable[[int, int, Record], None]:
    """Some ranks save beside every step: the save is no part of it."""

    def change(rank: int, step: int, record: Record) -> None:
        if rank in ranks:
            record["ckpt_duration_s"] = took_s

    return change


def uneven(seed: int) -> Callable[[int, int], float]:
    """Work that is uneven in every step, and never on the same ranks."""
    dice = random.Random(seed)
    return lambda rank, step: dice.choice((-0.06, -0.04, 0.0, 0.16))


def test_waits_that_overlapped_then_are_no_growth(tmp_path: Path) -> None:
    """Saves beside the step leave less than nothing for host code: that is not measured, and nobody grew."""
    result = compared(Job(seed=2), tmp_path, Job(seed=1, change=beside(4, 7, took_s=0.07)))

    assert (result.diagnosis.kind, result.diagnosis.culprits) == (Kind.HEALTHY, ())
    assert all((row.then_s or 0.0) >= 0.0 for ranked in result.comparison.ranks for row in ranked.rows)


@pytest.mark.parametrize("seed", range(2))
def test_uneven_work_accuses_nobody_and_no_network(seed: int, tmp_path: Path) -> None:
    """Who is late changes from step to step, so that all wait longer: neither a rank's nor the network's."""
    diagnosis = compared(Job(extra=uneven(seed), seed=seed + 2), tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.INCONCLUSIVE, ())
    assert "come later" in diagnosis.summary


def test_without_waits_a_rank_that_grew_is_a_suspect(tmp_path: Path) -> None:
    """Who does not wait cannot be told from records that do not say how long ranks wait."""
    slow = Job(extra=since(0, 5, seconds=0.1), leave_out=("comm_wait_s",), seed=2)
    diagnosis = compared(slow, tmp_path, Job(leave_out=("comm_wait_s",), seed=1)).diagnosis

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.STRAGGLER, (), (5,))


def test_more_than_a_quarter_of_the_ranks_are_suspects_at_most(tmp_path: Path) -> None:
    """Three of eight ranks that compute longer may as well have got more to do."""
    diagnosis = compared(Job(extra=since(0, 2, 3, 4, seconds=0.1), seed=2), tmp_path).diagnosis

    assert diagnosis.culprits == ()


def test_another_layout_accuses_nobody(tmp_path: Path) -> None:
    """Some ranks compute longer and all others less: work was moved."""
    moved = Job(compute_s=0.08, extra=since(0, 6, 7, seconds=0.06), seed=2)
    diagnosis = compared(moved, tmp_path).diagnosis

    assert (diagnosis.culprits, diagnosis.suspects) == ((), (6, 7))


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (Job(steps=400, save_every=200, save_s=5.0), Job(steps=400, save_every=50, save_s=5.0)),
        (Job(steps=600, save_every=100, save_s=5.0), Job(steps=60, save_every=40, save_s=5.0)),
        (Job(steps=600, save_every=600, save_s=0.5), Job(steps=200, save_every=200, save_s=5.0)),
    ],
)
def test_saving_more_often_is_no_slower_storage(then: Job, now: Job, tmp_path: Path) -> None:
    """A save is compared with a save, and one save a side is none to compare."""
    now.seed = 2
    result = compared(now, tmp_path, then)

    assert result.diagnosis.kind is Kind.HEALTHY
    (row,) = (row for row in result.comparison.rows if row.name == "a save")
    assert row.now_s == pytest.approx(5.0, rel=0.3)


@pytest.mark.parametrize("now", [Job(ranks=64, exchange_s=0.05), Job(ranks=4, compute_s=0.2), Job(ranks=4)])
def test_other_ranks_leave_it_open(now: Job, tmp_path: Path) -> None:
    """A ring over more ranks takes longer, and fewer have more to do each: that is said, and no more."""
    now.seed = 2
    diagnosis = compared(now, tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.INCONCLUSIVE, ())
    assert f"{now.ranks} ranks, the earlier one of 8" in diagnosis.summary


def test_data_is_slow_with_any_number_of_ranks(tmp_path: Path) -> None:
    """Waiting for data needs no equal ranks; that they differ is said."""
    diagnosis = compared(Job(ranks=4, data_s=0.005, seed=2), tmp_path).diagnosis

    assert diagnosis.kind is Kind.DATA_STARVED
    assert "the earlier one of 8" in diagnosis.summary


@pytest.mark.parametrize("culprit", [0, 5])
def test_an_earlier_run_convicts_a_rank_that_always_was_slower(culprit: int, tmp_path: Path) -> None:
    """From its own beginning the run can only suspect; the rank's past says that it need not be so."""
    diagnosis = compared(Job(extra=since(0, culprit, seconds=0.1), seed=2), tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (culprit,))
    assert diagnosis.confidence is Confidence.LIKELY
    assert "in the earlier run" in diagnosis.summary


def test_an_earlier_run_clears_a_rank_that_was_as_slow_then(tmp_path: Path) -> None:
    """What it does longer is its part in the job."""
    slow = since(0, 5, seconds=0.1)
    diagnosis = compared(Job(extra=slow, seed=2), tmp_path, Job(extra=slow, seed=1)).diagnosis

    assert (diagnosis.kind, diagnosis.confidence) == (Kind.HEALTHY, Confidence.LIKELY)
    assert "rank 5 was as slow in the earlier run" in diagnosis.summary
    assert Kind.STRAGGLER in {r.kind for r in diagnosis.ruled_out}


@pytest.mark.parametrize(("then", "now"), [(200, 12), (12, 200), (200, 1), (3, 3)])
def test_few_steps_say_nothing(then: int, now: int, tmp_path: Path) -> None:
    """After the warm-up ten records a rank are needed on both sides, and how many there are is said."""
    diagnosis = compared(Job(steps=now, seed=2), tmp_path, Job(steps=then, seed=1)).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.INCONCLUSIVE, ())
    assert f"{max(0, now - 3)} records a rank" in diagnosis.summary
    assert "at least 10" in diagnosis.summary
