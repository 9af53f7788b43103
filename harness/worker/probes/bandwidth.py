"""Bandwidth between neighbours: pairs that are slower than others, and which rank of them it is.

A slow pair says that a rank or the way between two is slow. Its ranks are measured again with partners whose
pairs were fast: only a rank that is slow with those, too, is named.
"""

import statistics
import time
from collections.abc import Sequence
from itertools import chain

import torch
import torch.distributed as dist

from harness.worker.probes.options import Options
from harness.worker.probes.ranks import Figures, backend_for, device_of, need_ranks, run_ranks

DEFAULTS: Options = {
    "nproc": 4,
    "mib": 8,
    "limit": 0.85,
    "rounds": 3,
    "nominal_gb_per_s": 0.0,
    "broken": "",
}

Pair = tuple[int, int]
Rates = dict[str, float]


def measure(options: Options) -> Figures:
    """Figures of `bandwidth`. `broken`: ``rank:N`` or ``pair:N-M``, which lets its messages wait.

    Raises:
        Unable: fewer than four ranks: a slow one could not be told from its partner.
    """
    nproc = int(options["nproc"])
    need_ranks(nproc, 4)
    results = run_ranks(_rank, nproc, dict(options))
    if results is None:
        return {}
    return results[0]


def _rank(options: Options) -> Figures:
    """What one rank does; all take every decision alike, from the same gathered rates."""
    meter = _Meter(options)
    world, limit = dist.get_world_size(), float(options["limit"])
    first = meter.all_of([(a, (a + 1) % world) for a in range(world)])
    # Of four pairs one bad rank makes two slow: the upper median is a healthy one's.
    median = statistics.median_high(rate["all_reduce"] for rate in first.values())
    slow = [pair for pair, rate in first.items() if rate["all_reduce"] < limit * median]
    named, again = _retest(meter, first, slow, limit * median)
    rates = {**first, **again}
    counted = {pair: rate for pair, rate in rates.items() if pair not in slow or _confirmed(pair, named)}
    lowest = min(rate["all_reduce"] for rate in counted.values()) / median
    only_pairs = [pair for pair in slow if not _confirmed(pair, named)]
    if only_pairs:
        lowest = min(lowest, *(first[pair]["all_reduce"] / median for pair in only_pairs))
    nominal = float(options["nominal_gb_per_s"])
    says = [f"rank {rank} is slow with every partner" for rank in named]
    says += [f"ranks {a} and {b} are slow with each other only: the way between them" for a, b in only_pairs]
    return {
        "lowest_ratio": lowest,
        "gb_per_s": median / 1e9,
        "all_gather_gb_per_s": statistics.median(rate["all_gather"] for rate in first.values()) / 1e9,
        "nominal_ratio": median / 1e9 / nominal if nominal else None,
        "slow_pairs": ", ".join(f"{a}-{b}" for a, b in slow),
        "slow_ranks": ", ".join(map(str, named)),
        "named": len(named),
        "says": says,
    }


def _confirmed(pair: Pair, named: Sequence[int]) -> bool:
    return bool(set(pair) & set(named))


def _retest(
    meter: "_Meter", first: dict[Pair, Rates], slow: Sequence[Pair], least: float
) -> tuple[list[int], dict[Pair, Rates]]:
    """Ranks that are slow with other partners, too, and what they did with those."""
    suspects = sorted(set(chain.from_iterable(slow)))
    healthy = [r for r in range(dist.get_world_size()) if r not in suspects]
    if not healthy:
        # Nobody is left to compare with: every rank with one that is not its neighbour.
        healthy = list(range(dist.get_world_size()))
    named: list[int] = []
    again: dict[Pair, Rates] = {}
    for i, rank in enumerate(suspects):
        partners = [p for p in healthy if p != rank and _ordered(rank, p) not in first] or healthy
        pair = _ordered(rank, partners[i % len(partners)])
        if pair[0] == pair[1]:
            continue
        again[pair] = meter.one(pair)
        if again[pair]["all_reduce"] < least:
            named.append(rank)
    return named, again


def _ordered(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


class _Meter:
    def __init__(self, options: Options) -> None:
        self._rank = dist.get_rank()
        self._rounds = int(options["rounds"])
        self._device = device_of(self._rank)
        self._tensor = torch.ones((int(options["mib"]) << 20) // 4, device=self._device)
        kind, _, who = str(options["broken"]).partition(":")
        self._slow_rank = int(who) if kind == "rank" else None
        self._slow_pair = set(map(int, who.split("-"))) if kind == "pair" else None
        self._groups: dict[Pair, dist.ProcessGroup] = {}

    def all_of(self, pairs: Sequence[Pair]) -> dict[Pair, Rates]:
        """Rates of all pairs, equal on every rank. One pair after the other where they share a machine."""
        return {_ordered(*pair): self.one(_ordered(*pair)) for pair in dict.fromkeys(pairs)}

    def one(self, pair: Pair) -> Rates:
        """Bus bandwidth of a pair in bytes a second, best round, known to every rank."""
        if pair not in self._groups:
            group = dist.new_group(list(pair), backend=backend_for(dist.get_world_size()))
            assert isinstance(group, dist.ProcessGroup) or self._rank not in pair
            self._groups[pair] = group
        found = torch.zeros(2, dtype=torch.float64)
        if self._rank in pair:
            group = self._groups[pair]
            found = torch.tensor(
                [self._best(pair, group, "all_reduce"), self._best(pair, group, "all_gather")],
                dtype=torch.float64,
            )
        shared = found.to(self._device, torch.float32 if self._device.type == "cuda" else torch.float64)
        # The slower of the two ends: an end that waits for the other sees the same time, nearly.
        dist.broadcast(shared, src=pair[0])
        return {"all_reduce": float(shared[0]), "all_gather": float(shared[1])}

    def _best(self, pair: Pair, group: dist.ProcessGroup, what: str) -> float:
        x = self._tensor
        size = x.numel() * x.element_size()
        parts = [torch.empty_like(x) for _ in pair] if what == "all_gather" else []
        best = 0.0
        for turn in range(self._rounds + 1):
            dist.barrier(group)
            begun = time.perf_counter()
            self._delay(pair, size)
            if what == "all_reduce":
                dist.all_reduce(x, group=group)
            else:
                dist.all_gather(parts, x, group=group)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            took = time.perf_counter() - begun
            if turn:
                # The first one makes the connection. Bus bandwidth: 2(n-1)/n of the bytes for all-reduce,
                # (n-1)/n of all that arrives for all-gather (nccl-tests, PERFORMANCE.md); n is two.
                best = max(best, size / took)
        return best

    def _delay(self, pair: Pair, size: int) -> None:
        """A slow card or cable, for a test: every message takes longer than any healthy one here would."""
        mine = self._slow_rank == self._rank or (self._slow_pair == set(pair) and self._rank == pair[0])
        if mine:
            time.sleep(0.05 + size / 1e8)
