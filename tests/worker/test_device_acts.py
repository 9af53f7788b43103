"""Faults of a device: what of them can be known without one. That they work on a card, only a card shows."""

from pathlib import Path

import pytest
import torch

from harness.bundle.layout import Layout
from harness.worker.acts.memory import (
    GREED_BYTES,
    HOLE_BYTES,
    KEPT_BYTES,
    EatDevice,
    Fragment,
    allowed_share,
    on_device,
)
from harness.worker.acts.slopes import CompetingKernel
from harness.worker.acts.stalls import BlockStream, StallInItem, _Pending, _pending
from harness.worker.environment import RankEnvironment
from harness.worker.faults import Act, Fault
from harness.worker.workloads.matrices import Matrices

MIB = 1 << 20


def fault(act: Act, bundle: Path, culprit: int = 0) -> Fault:
    """The act, armed on a rank in step 3 of this process, which is rank 0."""
    env = RankEnvironment(0, 0, 1, 0, "here", Layout(bundle))
    return Fault("act", (culprit,), 3, env, act)


@pytest.mark.parametrize("act", [BlockStream(), CompetingKernel(), EatDevice()])
def test_without_a_device_it_says_so_and_does_not_fire(tmp_path: Path, act: Act) -> None:
    """A fault that cannot take place is not on record as one that did."""
    armed = fault(act, tmp_path)
    act.at_step(armed, 2)
    with pytest.raises(RuntimeError, match="--backend nccl"):
        act.at_step(armed, 3)
        act.micro_batches(armed, 3, 1)

    assert "fired" not in (tmp_path / "injection.jsonl").read_text()


@pytest.mark.parametrize("act", [BlockStream(), CompetingKernel(), EatDevice(), StallInItem(), Fragment()])
def test_an_innocent_rank_is_left_alone(tmp_path: Path, act: Act) -> None:
    """Whatever the act needs, it asks for it on the culprit only."""
    act.at_step(fault(act, tmp_path, culprit=1), 3)
    act.after_training(fault(act, tmp_path, culprit=1))

    assert list(tmp_path.iterdir()) == []


def test_on_a_cpu_the_value_that_never_comes_is_the_stand_in() -> None:
    """No group of NCCL here: no device is touched."""
    assert not on_device()
    assert isinstance(_pending(), _Pending)


def test_two_holes_and_two_pieces_fill_a_segment() -> None:
    """The caching allocator cuts requests of 1 to 10 MiB from segments of 20; the rest is too small."""
    assert MIB < KEPT_BYTES < HOLE_BYTES < 10 * MIB
    left = 20 * MIB - 2 * (HOLE_BYTES + KEPT_BYTES)
    assert 0 <= left < MIB
    # The diagnosis asks that use stays flat against what is held: a quarter of its growth at most.
    assert 2 * (KEPT_BYTES + left) * 4 <= 2 * HOLE_BYTES * 2


def test_a_greedy_rank_takes_no_more_than_its_share() -> None:
    """What it holds and a gibibyte, so that the others on a shared card keep theirs."""
    total = 80 << 30
    assert allowed_share(0, total) == GREED_BYTES / total
    assert allowed_share(4 << 30, total) == (5 << 30) / total
    assert allowed_share(total, total) == 1.0


def test_matrices_are_counted_by_how_long_one_takes() -> None:
    """Twice the time is twice the products; at least one."""
    products = Matrices(torch.device("cpu"), 64)
    products.one_s = 0.001

    assert (products.work(0.010), products.work(0.020), products.work(0.0)) == (10, 20, 1)
