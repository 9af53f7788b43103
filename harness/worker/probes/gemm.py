"""Matrix multiply on each device: against its peers here, and against what its model did before."""

import json
import statistics
import time
from contextlib import suppress
from pathlib import Path

import torch

from harness.worker.probes.devices import Device, devices
from harness.worker.probes.options import Options, Unable

DEFAULTS: Options = {"size": 4096, "seconds": 1.0, "dtype": "bfloat16", "references": "", "broken": ""}

LIMIT = 0.95
"""The seed's criterion. Not against the nominal peak, which healthy cards miss."""

ROUNDS = 4
"""Each device is measured so often, in turn with the others, and its best round counts."""


def measure(options: Options) -> dict[str, object]:
    """Figures of `gemm`. `broken`: the index of a device that does everything twice.

    Raises:
        Unable: a dtype that torch does not know, or too little memory for the matrices.
    """
    size, seconds = int(options["size"]), float(options["seconds"])
    dtype = getattr(torch, str(options["dtype"]), None)
    if not isinstance(dtype, torch.dtype):
        raise Unable(f"--dtype {options['dtype']}: torch has no such type")
    broken = str(options["broken"])
    found = devices()
    best = [0.0] * len(found)
    for _ in range(ROUNDS):
        for i, device in enumerate(found):
            rate = _rate(device, size, dtype, seconds / ROUNDS, twice=broken == str(i))
            best[i] = max(best[i], rate)
    median = statistics.median_high(best)
    slow = [f"{d.name} {b / median:.0%}" for d, b in zip(found, best, strict=True) if b < LIMIT * median]
    key = f"{found[0].model}, {options['dtype']} {size}"
    reference = _Reference(str(options["references"]), key)
    peer_ratio = min(best) / median
    says = [f"{name} of its peers' rate" for name in slow]
    if reference.value is None and not slow and reference.record(median):
        says.append(f"no reference for {key} was on record: this measurement is the reference from now on")
    ratio = median / reference.value if reference.value else None
    if ratio is not None and ratio < LIMIT:
        says.append(f"{ratio:.0%} of the reference for {key}, {reference.value:.3g} TFLOP/s")
    return {
        "peer_ratio": peer_ratio,
        "reference_ratio": ratio,
        "worst_ratio": peer_ratio if ratio is None else min(peer_ratio, ratio),
        "tflops": median,
        "devices": len(found),
        "slow": ", ".join(slow),
        "says": says,
    }


def _rate(device: Device, size: int, dtype: torch.dtype, seconds: float, *, twice: bool) -> float:
    """TFLOP/s of a square matrix multiply, 2 n^3 operations each."""
    device.enter()
    try:
        a = torch.randn(size, size, device=device.torch).to(dtype)
        b = torch.randn(size, size, device=device.torch).to(dtype)
        torch.mm(a, b)
    except RuntimeError as error:
        raise Unable(f"{device.name}: {str(error).splitlines()[0]}") from None
    device.synchronize()
    count, begun, until = 0, device.clock(), time.monotonic() + seconds
    while time.monotonic() < until or not count:
        for _ in range(2 if twice else 1):
            torch.mm(a, b)
        count += 1
        device.synchronize()
    took = device.clock() - begun
    return 2 * size**3 * count / took / 1e12


class _Reference:
    """What devices of one model did, in a JSON file: key -> TFLOP/s. A file that is none is no reference."""

    def __init__(self, path: str, key: str) -> None:
        self._path = Path(path) if path else None
        self._key = key
        self._all: dict[str, float] = {}
        if self._path is not None:
            with suppress(OSError, ValueError):
                self._all = dict(json.loads(self._path.read_text()))

    @property
    def value(self) -> float | None:
        found = self._all.get(self._key)
        return float(found) if isinstance(found, (int, float)) and found > 0 else None

    def record(self, rate: float) -> bool:
        """Keep a rate as the reference; False where there is nowhere to."""
        if self._path is None:
            return False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({**self._all, self._key: round(rate, 4)}, indent=1) + "\n")
        except OSError:
            return False
        return True
