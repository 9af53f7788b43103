"""Full load for a while: whether the rate holds, at which clock, and what throttled it."""

import statistics
import time
from contextlib import suppress
from pathlib import Path

import torch

from harness.worker.probes.devices import Device, devices
from harness.worker.probes.options import Options
from harness.worker.probes.smi import clocks_now

DEFAULTS: Options = {"seconds": 20.0, "broken": ""}

SIZE = {"cuda": 8192, "cpu": 512}
WINDOWS = 12

THERMAL = Path("/sys/devices/system/cpu")


def measure(options: Options) -> dict[str, object]:
    """Figures of `clocks`. `broken`: slow, the last quarter does everything three times."""
    seconds = float(options["seconds"])
    found = devices(at_most_cores=1)
    before = _core_throttles()
    rates: list[list[float]] = [[] for _ in found]
    clocks: list[float] = []
    reasons: set[str] = set()
    for window in range(WINDOWS):
        slow = options["broken"] == "slow" and window >= WINDOWS * 3 // 4
        for i, rate in enumerate(_load(found, seconds / WINDOWS, 3 if slow else 1)):
            rates[i].append(rate)
        if found[0].core is None and window:
            ratios, active = clocks_now()
            clocks += ratios
            reasons |= active
    if (throttles := _core_throttles() - before) > 0:
        reasons.add(f"thermal throttling of a core, {throttles} times")
    ratios = [_sustained(series) for series in rates]
    worst = min(range(len(found)), key=lambda i: ratios[i])
    throttled = ", ".join(sorted(reasons))
    return {
        "sustained_ratio": ratios[worst],
        "clock_ratio": min(clocks) if clocks else None,
        "throttled": throttled,
        "seconds": seconds,
        "says": [f"{found[worst].name}: {ratios[worst]:.0%} of its best rate at the end"]
        + ([f"throttled: {throttled}"] if throttled else []),
    }


def _sustained(series: list[float]) -> float:
    """The last quarter's median to the best quarter's."""
    quarter = len(series) // 4
    parts = [statistics.median(series[at : at + quarter]) for at in range(0, 4 * quarter, quarter)]
    return parts[-1] / max(parts)


def _load(found: list[Device], seconds: float, times: int) -> list[float]:
    """All devices busy together for so long; multiplies a second of each."""
    if found[0].core is not None:
        return [_on_core(found[0], seconds, times)]
    size = SIZE["cuda"]
    matrices = [torch.randn(size, size, device=d.torch, dtype=torch.bfloat16) for d in found]
    counts = [0] * len(found)
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for i, device in enumerate(found):
            with torch.cuda.device(device.torch):
                for _ in range(8 * times):
                    torch.mm(matrices[i], matrices[i])
                counts[i] += 8
        for device in found:
            device.synchronize()
    took = time.perf_counter() - begun
    return [count / took for count in counts]


def _on_core(device: Device, seconds: float, times: int) -> float:
    device.enter()
    a = torch.randn(SIZE["cpu"], SIZE["cpu"])
    count, begun, until = 0, device.clock(), time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(times):
            torch.mm(a, a)
        count += 1
    return count / (device.clock() - begun)


def _core_throttles() -> int:
    """How often cores were throttled for heat since boot; 0 where the kernel does not count."""
    total = 0
    for path in THERMAL.glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        with suppress(OSError, ValueError):
            total += int(path.read_text())
    return total
