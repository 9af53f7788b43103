"""The account of memory: the peak that was computed beforehand against the peak of a dry run."""

import json
import os
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from harness.worker.probes.options import Options, Unable
from harness.worker.probes.ranks import device_of

DEFAULTS: Options = {"signals": "", "computed_mib": 0.0, "device_mib": 0.0, "broken": ""}

WIDTH, LAYERS, BATCH = 1024, 6, 64
MIB = 1 << 20


def measure(options: Options) -> dict[str, object]:
    """Figures of `memory_account`.

    With `signals` the dry run is the user's: a folder of step records with mem_allocated_peak, against
    `computed_mib`. Without, a small model is trained here. `broken`: leak, it keeps what it should not.

    Raises:
        Unable: no such records, or nothing computed to hold them against.
    """
    if options["signals"]:
        computed = float(options["computed_mib"]) * MIB
        if computed <= 0:
            raise Unable("--signals needs --computed-mib: the peak as your ledger has it")
        measured, reserved = _recorded(Path(str(options["signals"])))
    else:
        computed = float(options["computed_mib"]) * MIB or _computed()
        measured = reserved = _dry_run(leak=options["broken"] == "leak")
    total = float(options["device_mib"]) * MIB or _device_bytes()
    return {
        "ratio": measured / computed,
        "measured_mib": measured / MIB,
        "computed_mib": computed / MIB,
        "reserve": 1 - reserved / total,
        "says": [f"{measured / MIB:.0f} MiB measured, {computed / MIB:.0f} MiB computed"],
    }


def _parameters() -> int:
    return LAYERS * (WIDTH * WIDTH + WIDTH)


def _computed() -> float:
    """Bytes at the peak, which is in the optimizer's step, when the activations are gone.

    Weights, gradients and Adam's two moments in float32: 16 bytes a parameter.
    """
    return 16.0 * _parameters()


def _dry_run(*, leak: bool) -> float:
    """Peak bytes of tensors over two steps: the allocator's own count, on a card or of the CPU."""
    device = device_of(0)
    torch.manual_seed(1)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        _train(device, leak=leak)
        return float(torch.cuda.max_memory_allocated(device))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _train(device, leak=leak)
    live = peak = 0
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return float(peak)


def _train(device: torch.device, *, leak: bool) -> None:
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    # Fused: no temporary copies of all states at once, which the account has no line for.
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    kept = []
    for _ in range(2):
        model(torch.randn(BATCH, WIDTH, device=device)).square().mean().backward()
        optimizer.step()
        if leak:
            kept.append([p.detach().clone() for p in model.parameters()])


def _recorded(folder: Path) -> tuple[float, float]:
    """The largest allocated and reserved peaks of any rank in a folder of step records, bytes."""
    allocated = reserved = 0.0
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                allocated = max(allocated, _number(record.get("mem_allocated_peak")))
                reserved = max(reserved, _number(record.get("mem_reserved_peak")))
    if not allocated:
        raise Unable(f"{folder}: no step record there has mem_allocated_peak")
    return allocated, max(reserved, allocated)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _device_bytes() -> float:
    """The smallest card's memory, or the machine's."""
    if torch.cuda.is_available():
        return float(
            min(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count()))
        )
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
