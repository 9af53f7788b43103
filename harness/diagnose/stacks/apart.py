"""Who drags, from shares: the rank at work while its peers wait, more often than chance explains."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from harness.diagnose.stacks.activity import COMMUNICATION, ITEM_SYNC
from harness.diagnose.stacks.shares import RankShares, is_work
from harness.model.diagnosis import Citation

ERROR = 0.005
"""Probability that anybody at all is named among ranks that are alike, over all ranks together."""

MIN_RANKS = 3
MIN_MOMENTS = 5
"""One event, such as a save of one rank, may span a few samplings even where nobody is seen to sleep."""

MIN_GAP = 0.2
"""A spread of 20 % with the same rank always last makes a suspect (DIAGNOSIS, thresholds)."""


def who_waits_least(shares: Mapping[int, RankShares], on_cpus: bool = False) -> tuple[int, ...]:
    """Ranks that are at work of their own clearly more often than all others; () if nobody is.

    The test: were all ranks alike, then in each moment the ones at work would be any of them, so that a rank
    is among them with probability (ranks at work) / (ranks read), whatever the step looks like. How often it
    was has a Poisson-binomial distribution; its tail, times the number of ranks (Bonferroni), must be below
    ERROR. Moments in which all work, or all wait, say nothing and weigh nothing.

    Chance excluded, ranks may differ for good reasons (stages of a pipeline): whoever is named is at work in
    a share of the moments that is MIN_GAP above that of everybody else, and those named are less than half.

    With 8 ranks one that works alone is named from five moments on: 8 x (1/8)^5 = 0.0002. `on_cpus`:
    item() and synchronize() are work only where no GPU is waited for.
    """
    works = {
        rank: tuple(None if what is None else _at_work(what, on_cpus) for what in own.moments)
        for rank, own in shares.items()
        if any(what is not None for what in own.moments)
    }
    if len(works) < MIN_RANKS:
        return ()
    chances = _chances(list(works.values()))
    named = [rank for rank in sorted(works) if len(works) * _tail(works[rank], chances) < ERROR]
    others = [_share(works[rank]) for rank in works if rank not in named]
    if not named or 2 * len(named) >= len(works):
        return ()
    apart = all(_share(works[rank]) >= max(others) + MIN_GAP for rank in named)
    return tuple(named) if apart else ()


def cite_shares(rank: int, shares: Mapping[int, RankShares]) -> Citation:
    """What a rank was caught at, and in what its peers waited meanwhile.

    Such as "rank 2: in 8 of 12 samples in its own code, most in forward mlp.py:31 (6); its 3 peers waited for
    others in 31 of 36, most in all_reduce".
    """
    own = shares[rank]
    work = own.work or "own"
    peers = [peer for number, peer in shares.items() if number != rank]
    waited, backward = (
        sum(round(peer.doing.get(what, 0.0) * peer.samples) for peer in peers)
        for what in (COMMUNICATION, "backward")
    )
    calls = Counter(peer.waited_in for peer in peers if peer.waited_in)
    where = f", most in {calls.most_common(1)[0][0]}" if calls else ""
    undecided = f"; in {backward} they were in backward, which computes or waits" if backward else ""
    place = f", most in {own.top[0][0]} ({round(own.top[0][1] * own.samples)})" if own.top else ""
    says = (
        f"rank {rank}: in {round(own.doing.get(work, 0.0) * own.samples)} of {own.samples} samples "
        f"{WORDS.get(work, work)}{place}; its {len(peers)} peers waited for others in {waited} of "
        f"{sum(peer.samples for peer in peers)}{where}{undecided}"
    )
    return Citation("stack", says, own.file, rank=rank)


WORDS = {
    "own": "in its own code",
    "dataloader": "in its data loader",
    "logging": "writing output",
    "checkpoint": "saving a checkpoint",
    "item_sync": "in item() or synchronize()",
    "lock": "waiting for a lock of its own",
    "io": "reading or writing files or sockets",
    "stopped": "stopped by a signal",
}


def _at_work(what: str, on_cpus: bool) -> bool:
    return is_work(what) and (on_cpus or what != ITEM_SYNC)


def _chances(works: Sequence[Sequence[bool | None]]) -> list[float]:
    """For each moment: the share of the ranks read in it that were at work.

    Nodes that were sampled each for itself may have unequal numbers of moments.
    """
    chances: list[float] = []
    for moment in zip_longest(*works):
        read = [at_work for at_work in moment if at_work is not None]
        chances.append(sum(read) / len(read) if read else 0.0)
    return chances


def _tail(works: Sequence[bool | None], chances: Sequence[float]) -> float:
    """Probability to be at work as often as this rank was, or more often, by chance; 1 if seldom at work."""
    count = sum(1 for at_work in works if at_work)
    if count < MIN_MOMENTS:
        return 1.0
    distribution = [1.0]
    for at_work, chance in zip(works, chances, strict=False):
        if at_work is None:
            continue
        stays = [p * (1 - chance) for p in distribution]
        rises = [p * chance for p in distribution]
        distribution = [a + b for a, b in zip([*stays, 0.0], [0.0, *rises], strict=True)]
    return sum(distribution[count:])


def _share(works: Sequence[bool | None]) -> float:
    read = [at_work for at_work in works if at_work is not None]
    return sum(read) / len(read)
