"""Steady steps of a small transformer on all ranks: what later runs are compared with."""

import os
import statistics
import time
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it when it is made: forked ranks would each pay for it
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from harness.worker.probes.options import Options
from harness.worker.probes.ranks import Figures, device_of, run_ranks
from harness.worker.workloads.transformer import BATCH, LENGTH, VOCABULARY, WIDTH, Transformer

DEFAULTS: Options = {"nproc": 4, "steps": 100, "step_ms": 0.0, "broken": ""}

WARM_UP_STEPS = 5
TRACED_STEPS = 3
REPEATS = {"cuda": 64, "cpu": 1}
"""Batches of a step, so that a card has something to do."""


def measure(options: Options) -> Figures:
    """Figures of `baseline`. `broken`: jitter, every tenth step of rank 0 takes six times as long.

    `step_ms`: each step waits so long besides, as a host waits for its device; for rehearsals on few cores.
    """
    results = run_ranks(
        _rank,
        int(options["nproc"]),
        int(options["steps"]),
        float(options["step_ms"]) / 1000,
        options["broken"] == "jitter",
    )
    if results is None:
        return {}
    return results[0]


def _rank(steps: int, step_s: float, jitter: bool) -> Figures:
    rank, world = dist.get_rank(), dist.get_world_size()
    device = device_of(rank)
    torch.manual_seed(7)
    model = DistributedDataParallel(Transformer().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = BATCH * REPEATS[device.type]
    tokens = torch.randint(VOCABULARY, (batch, LENGTH), device=device)

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step_s:
            time.sleep(step_s)

    took = []
    for number in range(WARM_UP_STEPS + steps):
        begun = time.perf_counter()
        step()
        if jitter and rank == 0 and number % 10 == 0:
            time.sleep(5 * (time.perf_counter() - begun))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - begun)
    took = took[WARM_UP_STEPS:]
    size = _trace(step) if rank == 0 else _without_trace(step)
    p50 = statistics.median(took)
    p95 = statistics.quantiles(took, n=20)[-1]
    tokens_per_s = batch * LENGTH * world / p50
    return {
        "p50_ms": p50 * 1000,
        "p95_ms": p95 * 1000,
        "ratio": p95 / p50,
        "tokens_per_s": tokens_per_s,
        "mfu": _mfu(model, tokens_per_s / world, device),
        "steps": len(took),
        "trace_mib": size / (1 << 20),
        "says": [f"p50 {p50 * 1000:.1f} ms, p95 {p95 * 1000:.1f} ms over {len(took)} steps of {world} ranks"],
    }


def _trace(step: object) -> int:
    """Record a few steps of this rank; the trace is kept beside the figures. Its size in bytes."""
    assert callable(step)
    with profile(activities=[ProfilerActivity.CPU, *_cuda()]) as profiler:
        for _ in range(TRACED_STEPS):
            step()
            profiler.step()
    path = Path(os.environ.get("DRILL_PROBE_OUT", ".")) / "trace_rank_0.json"
    if "DRILL_PROBE_OUT" not in os.environ:
        return 0
    profiler.export_chrome_trace(str(path))
    return path.stat().st_size


def _without_trace(step: object) -> int:
    assert callable(step)
    for _ in range(TRACED_STEPS):
        step()
    return 0


def _cuda() -> list[ProfilerActivity]:
    return [ProfilerActivity.CUDA] if torch.cuda.is_available() else []


def _mfu(model: nn.Module, tokens_per_s: float, device: torch.device) -> float | None:
    """Model FLOPs to the card's peak, by 6 N + 12 L H S a token (PaLM, appendix B); None on a CPU."""
    if device.type != "cuda":
        return None
    from harness.worker.peaks import peak_flops

    peak = peak_flops(torch.cuda.get_device_name(device))
    parameters = sum(p.numel() for p in model.parameters())
    inner = model.module
    assert isinstance(inner, Transformer)
    layers = len(inner.layers)
    per_token = 6 * parameters + 12 * layers * WIDTH * LENGTH
    return per_token * tokens_per_s / peak if peak else None
