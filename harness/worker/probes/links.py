"""Copies between each two devices of this machine: a pair that is slower than the others."""

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from harness.worker.probes.options import Options, Unable
from harness.worker.probes.ranks import Figures, need_ranks, run_ranks

DEFAULTS: Options = {"mib": 64, "nproc": 4, "limit": 0.85, "broken": ""}

ROUNDS = 4

Pair = tuple[int, int]


def measure(options: Options) -> Figures:
    """Figures of `links`. Two cards: device-to-device copies. No card: messages between processes.

    `broken`: ``N-M``, a pair whose copies wait.

    Raises:
        Unable: one card only.
    """
    size = int(options["mib"]) << 20
    broken = tuple(map(int, str(options["broken"]).split("-"))) if options["broken"] else ()
    if torch.cuda.device_count() == 1:
        raise Unable("one card has no links to others")
    if torch.cuda.device_count() > 1:
        count = torch.cuda.device_count()
        rates = {
            (a, b): _best(lambda a=a, b=b: _copy(a, b, size, slow=(a, b) == broken), size)  # type: ignore[misc]
            for a in range(count)
            for b in range(count)
            if a != b
        }
        return figures(rates, float(options["limit"]))
    need_ranks(int(options["nproc"]), 3)
    results = run_ranks(_rank, int(options["nproc"]), size, broken)
    if results is None:
        return {}
    rates = {}
    for result in results:
        for name, rate in result.items():
            a, _, b = name.partition("-")
            assert isinstance(rate, float)
            rates[int(a), int(b)] = rate
    return figures(rates, float(options["limit"]))


def figures(rates: dict[Pair, float], limit: float) -> Figures:
    """Rates in bytes a second, by pair, as the figures of this probe."""
    median = statistics.median_high(rates.values())
    slow = [f"{a}-{b} {rate / median:.0%}" for (a, b), rate in sorted(rates.items()) if rate < limit * median]
    return {
        "lowest_ratio": min(rates.values()) / median,
        "gb_per_s": median / 1e9,
        "pairs": len(rates),
        "slow": ", ".join(slow),
        "says": [f"pair {name} of the median rate" for name in slow],
    }


def _best(once: Callable[[], float], size: int) -> float:
    return max(size / once() for _ in range(ROUNDS))


def _copy(a: int, b: int, size: int, *, slow: bool) -> float:
    source = torch.empty(size, dtype=torch.uint8, device=f"cuda:{a}")
    target = torch.empty(size, dtype=torch.uint8, device=f"cuda:{b}")
    target.copy_(source)
    for device in (a, b):
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    target.copy_(source)
    if slow:
        time.sleep(0.05)
    for device in (a, b):
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def _rank(size: int, broken: Pair) -> Figures:
    """Every ordered pair in turn; the receiver's time counts, from an agreed start."""
    rank, world = dist.get_rank(), dist.get_world_size()
    data = torch.ones(size, dtype=torch.uint8)
    answer = torch.zeros(1, dtype=torch.uint8)
    found: dict[str, object] = {}
    for a in range(world):
        for b in range(world):
            if a == b or rank not in (a, b):
                continue
            best = 0.0
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                if rank == a:
                    if (a, b) == broken:
                        time.sleep(0.05 + size / 1e8)
                    dist.send(data, b)
                    dist.recv(answer, b)
                    best = max(best, size / (time.perf_counter() - begun))
                else:
                    dist.recv(data, a)
                    dist.send(answer, a)
            if rank == a:
                found[f"{a}-{b}"] = best
        dist.barrier()
    return found
