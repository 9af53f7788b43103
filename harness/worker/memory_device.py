"""What CUDA's caching allocator holds for this process."""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import cast

Stats = Mapping[str, int | Mapping[str, Mapping[str, int]]]
"""Counters, and statistics by pool (`all` and others) and by `current`, `peak`, `allocated`, `freed`."""

_COUNTERS = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")
_CHOOSE_EVERY = 100


class DeviceMemory:
    """Reads the allocator's own counters on the host: initialises no device, calls none, waits for none."""

    def __init__(self) -> None:
        self._device = 0
        self._reads = 0

    def read(self) -> dict[str, int] | None:
        """Bytes and counters of the device that this process uses most; None where it uses none.

        Peaks are of the process so far, or since it reset them. Which device is chosen anew every hundred
        reads, since a process may touch another one before it settles. Source: `torch.cuda.memory_stats`.
        """
        cuda = _initialised()
        if cuda is None:
            return None
        # Nested: flattening and sorting, which memory_stats does, costs more than asking.
        ask = cuda.memory_stats_as_nested_dict
        if self._reads % _CHOOSE_EVERY == 0:
            devices = range(cuda.device_count())
            self._device = max(devices, key=lambda device: _reserved(ask(device)), default=0)
        stats = cast(Stats, ask(self._device))
        if not _reserved(stats):
            return None
        self._reads += 1
        found = {
            "mem_allocated_peak": _all(stats, "allocated_bytes", "peak"),
            "mem_reserved_peak": _reserved(stats),
            "mem_inactive_split": _all(stats, "inactive_split_bytes", "current"),
            **{name: stats.get(name) for name in _COUNTERS},
        }
        return {name: value for name, value in found.items() if isinstance(value, int)}


def _initialised() -> ModuleType | None:
    """torch.cuda, if somebody imported and initialised it in this process."""
    cuda: ModuleType | None = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _all(stats: Stats, name: str, which: str) -> int | None:
    pools = stats.get(name)
    return pools.get("all", {}).get(which) if isinstance(pools, Mapping) else None


def _reserved(stats: Stats) -> int:
    return _all(stats, "reserved_bytes", "peak") or 0
