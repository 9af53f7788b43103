"""Two runs compared: `diagnose NOW --baseline THEN`, on made-up jobs' step records."""

from pathlib import Path

import pytest

from harness.diagnose.comparing import compare
from harness.model.comparison import ComparedResult
from harness.model.kinds import Kind
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
        if rank == 2 and step == 70:
            record["loss"] = "NaN"

    result = compared(Job(data_s=0.02, change=spoil, seed=2), tmp_path)

    assert (result.diagnosis.kind, result.diagnosis.culprits) == (Kind.LOSS_NOT_FINITE, (2,))
