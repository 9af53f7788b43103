"""Chance names nobody; a rank that is at work while its peers wait is named."""

import random
from collections.abc import Callable

import pytest

from harness.diagnose.stacks.apart import cite_shares, who_waits_least
from harness.diagnose.stacks.shares import RankShares

JOBS = 2000

Draw = Callable[[random.Random, float, float], bool]


def shares_of(moments: list[list[str | None]]) -> dict[int, RankShares]:
    """Shares by what each rank did in each moment."""
    return {
        rank: RankShares(rank, len(own), {}, (), "stacks/attempt_0", moments=tuple(own))
        for rank, own in enumerate(moments)
    }


def independently(rng: random.Random, phase: float, work: float) -> bool:
    """At work or not, whatever the others do."""
    return rng.random() < work


def in_steps(rng: random.Random, phase: float, work: float) -> bool:
    """First work, then wait for the slowest: all in one phase of the step, whose work varies by 30 %."""
    return phase < work * rng.gauss(1, 0.3)


def job(rng: random.Random, ranks: int, samplings: int, draw: Draw, work: float) -> dict[int, RankShares]:
    """A job whose ranks are all alike."""
    moments: list[list[str | None]] = [[] for _ in range(ranks)]
    for _ in range(samplings):
        phase = rng.random()
        for own in moments:
            unreadable = rng.random() < 0.03
            own.append(None if unreadable else "own" if draw(rng, phase, work) else "communication")
    return shares_of(moments)


@pytest.mark.parametrize("draw", [independently, in_steps])
@pytest.mark.parametrize(("ranks", "samplings"), [(3, 10), (4, 40), (8, 10), (16, 10)])
def test_a_healthy_job_names_nobody(draw: Draw, ranks: int, samplings: int) -> None:
    """Of 2000 jobs whose ranks are alike, with any share of work, fewer than 1 % name anybody."""
    rng = random.Random(20)

    named = sum(
        bool(who_waits_least(job(rng, ranks, samplings, draw, rng.uniform(0.05, 0.95)))) for _ in range(JOBS)
    )

    assert named < JOBS / 100


@pytest.mark.parametrize("slow", [(5,), (2, 5)])
def test_slow_ranks_are_named(slow: tuple[int, ...]) -> None:
    """Ranks at work for 70 % of the step while the rest work for 15 %: named mostly, and nobody else."""
    rng = random.Random(3)
    found = []
    for _ in range(200):
        moments: list[list[str | None]] = [[] for _ in range(8)]
        for _ in range(20):
            phase = rng.random()
            for rank, own in enumerate(moments):
                own.append("own" if phase < (0.7 if rank in slow else 0.15) else "communication")
        found.append(who_waits_least(shares_of(moments)))

    assert set(found) <= {slow, ()}
    assert found.count(slow) > 180


def constant(*doing: str, count: int = 12) -> dict[int, RankShares]:
    """Each rank does one thing only."""
    return shares_of([[what] * count for what in doing])


def test_two_ranks_are_too_few() -> None:
    """Of two ranks either may be the odd one."""
    assert who_waits_least(constant("own", "communication")) == ()


def test_few_moments_are_too_few() -> None:
    """Eight ranks, four moments: one event of a rank may span them."""
    peers = ["communication"] * 7

    assert who_waits_least(constant("own", *peers, count=4)) == ()
    assert who_waits_least(constant("own", *peers, count=5)) == (0,)


def test_half_of_the_ranks_are_no_minority() -> None:
    """Where as many work as wait, neither side is odd."""
    assert who_waits_least(constant("own", "own", "communication", "communication", count=60)) == ()


def test_ranks_that_differ_by_degrees() -> None:
    """A pipeline's stages work more and more: the most loaded one stands out from none of its neighbours."""
    moments: list[list[str | None]] = [
        ["own" if moment % 20 < 2 * rank + 2 else "communication" for moment in range(400)]
        for rank in range(8)
    ]

    assert who_waits_least(shares_of(moments)) == ()


def test_backward_is_no_work() -> None:
    """Autograd may compute or wait: who is in it is not named, whoever else waits."""
    assert who_waits_least(constant("backward", *["communication"] * 7)) == ()


def test_peers_in_backward_are_cited_as_such() -> None:
    """What is undecided is said to be."""
    peer = RankShares(0, 10, {"backward": 0.7, "communication": 0.3}, (), "f", waited_in="all_reduce")
    slow = RankShares(1, 10, {"dataloader": 1.0}, (("load data.py:3", 0.9),), "f")

    assert cite_shares(1, {0: peer, 1: slow, 2: peer}).says == (
        "rank 1: in 10 of 10 samples in its data loader, most in load data.py:3 (9); its 2 peers waited for "
        "others in 6 of 20, most in all_reduce; in 14 they were in backward, which computes or waits"
    )


def test_a_value_is_waited_for_on_gpus_only() -> None:
    """On a GPU item() may wait for a collective; on a CPU it is work."""
    shares = constant("item_sync", *["communication"] * 7)

    assert who_waits_least(shares) == ()
    assert who_waits_least(shares, on_cpus=True) == (0,)


def test_nodes_of_unequal_moments() -> None:
    """Ranks of two nodes, one of which was sampled more often, are compared in what there is."""
    first, second = constant(*["communication"] * 4, count=9), constant("own", *["communication"] * 3)

    assert who_waits_least({**first, **{rank + 4: own for rank, own in second.items()}}) == (4,)
