"""What happens when NCCL will not have eight ranks on one card."""

import dataclasses
from pathlib import Path

import pytest

from harness.catalog.find import find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.model.errors import PrerequisiteError
from harness.model.plan import RunPlan
from harness.observe.machine import Machine
from harness.sharing import fewer_ranks, refusal

OLD = "n:71:90 [0] NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 59000"
NEW = "[2026-11-30 10:00:00] n:71:90 [0] NCCL WARN Multiple Ranks are using the same GPU/Partition."
BUSY = "torch.AcceleratorError: CUDA error: all CUDA-capable devices are busy or unavailable"


def cards(count: int) -> Machine:
    return Machine(count, "2.13.0+cu130", "13.0", "2.29.7")


def shared(drill: str, count: int, **flags: str) -> RunPlan:
    """A drill on one shared card."""
    spec = find_drill(drill)
    flags = {"share_gpu": "true", **flags}
    return plan_run(
        spec, settle(spec, dataclasses.replace(Sources.read(flags, ()), environ={})), machine=cards(count)
    )


@pytest.mark.parametrize("line", [OLD, NEW, BUSY])
def test_a_refusal_is_known_by_its_words(tmp_path: Path, line: str) -> None:
    """NCCL's wording before and since 2.30, and CUDA's for a card in exclusive mode."""
    folder = tmp_path / "logs" / "x_1" / "attempt_0" / "3"
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text(f"something else\n{line}\nNCCL error in: init.cpp\n")

    assert refusal(tmp_path) == line[:200]


def test_an_ordinary_failure_is_no_refusal(tmp_path: Path) -> None:
    """A watchdog's timeout, or no logs at all, changes no plan."""
    assert refusal(tmp_path) is None
    folder = tmp_path / "logs" / "x_1" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text("[rank0]: Watchdog caught collective operation timeout\n")
    assert refusal(tmp_path) is None


def test_as_many_ranks_as_cards_and_that_is_said() -> None:
    """Three of eight: unshared, the culprit inside the world, and a note that says why."""
    plan = fewer_ranks(shared("fr_hang", 3), OLD, cards(3))

    assert (plan.nproc, plan.backend, plan.shared, plan.culprits) == (3, "nccl", False, (2,))
    assert "DRILL_SHARE_GPU" not in plan.env
    assert any("refused 8 ranks" in note and "run with 3" in note for note in plan.notes)


def test_one_rank_breaks_nothing() -> None:
    """With a single card there is nobody to wait: exit code 4 with the refusal's own words."""
    with pytest.raises(
        PrerequisiteError, match=r"Duplicate GPU.*with 1 rank, one a card, fr_hang shows nothing"
    ):
        fewer_ranks(shared("fr_hang", 1), OLD, cards(1))
    assert fewer_ranks(shared("control", 1), OLD, cards(1)).nproc == 1


def test_a_culprit_that_was_chosen_is_not_moved() -> None:
    """Rank 6 of eight is none of three: nothing else is broken in its place."""
    with pytest.raises(PrerequisiteError, match="outside the world"):
        fewer_ranks(shared("fr_hang", 3, culprit="6"), OLD, cards(3))
