"""Records the samples beside it: torch.profiler on two gloo ranks that train a small model for real.

    python tests/diagnose/traces/samples/record.py

Each folder is one side of a comparison: `then`, `again` (the same once more), `slow_loader` (reading a sample
takes 1.5 ms), `late_rank` (rank 1 computes its middle layers sixteen times). A side is recorded again while
its steps are uneven: other work ran on the machine. Names of hosts and files, process and thread numbers are
replaced before anything is written.
"""

import gzip
import json
import statistics
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

SIDES: dict[str, tuple[float, int]] = {
    "then": (0.0, 1),
    "again": (0.0, 1),
    "slow_loader": (0.0015, 1),
    "late_rank": (0.0, 16),
}
WORLD, STEPS, BATCH, WIDTH = 2, 7, 32, 384
EVEN, TRIES = 1.25, 40
"""Longest by median step of a side that counts as undisturbed, and how often to try for one."""


class Samples(Dataset[torch.Tensor]):
    """Random vectors that take `read_s` to read."""

    def __init__(self, read_s: float) -> None:
        self._read_s = read_s

    def __len__(self) -> int:
        return BATCH * (STEPS + 3)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._read_s:
            time.sleep(self._read_s)
        return torch.randn(WIDTH)


class Model(nn.Module):
    """Three linear layers, the middle ones checkpointed and computed `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 2 * WIDTH)
        self.middle = nn.Sequential(nn.Linear(2 * WIDTH, 2 * WIDTH), nn.ReLU())
        self.last = nn.Linear(2 * WIDTH, 8)
        self._times = times

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(batch))
        for _ in range(self._times):
            hidden = checkpoint(self.middle, hidden, use_reentrant=False)
        out: torch.Tensor = self.last(hidden)
        return out


def train(rank: int, folder: Path, read_s: float, times: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, init_method=f"file://{folder / 'store'}")
    model = nn.parallel.DistributedDataParallel(Model(times if rank == 1 else 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(Samples(read_s), batch_size=BATCH))
    file = folder / f"rank{rank}.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=STEPS - 2),
        on_trace_ready=lambda done: done.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(STEPS):
            batch = next(batches)
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            profiler.step()
    dist.destroy_process_group()


def anonymous(trace: dict[str, Any]) -> dict[str, Any]:
    """The same trace without what tells of a machine."""
    numbers: dict[object, int] = {}
    for event in trace["traceEvents"]:
        for key in ("pid", "tid"):
            if isinstance(event.get(key), int):
                event[key] = numbers.setdefault(event[key], 4000 + len(numbers))
        if event["ph"] == "M":
            event["args"] = {}
    kept = ("schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "baseTimeNanoseconds")
    return {**{key: trace[key] for key in kept}, "traceEvents": trace["traceEvents"]}


def record(folder: Path, read_s: float, times: int) -> list[dict[str, Any]]:
    """One side, each rank's trace."""
    context = get_context("fork")
    ranks = [context.Process(target=train, args=(rank, folder, read_s, times)) for rank in range(WORLD)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        sys.exit("a rank failed")
    return [json.loads((folder / f"rank{rank}.json").read_bytes()) for rank in range(WORLD)]


def unevenness(trace: dict[str, Any]) -> float:
    """Longest by median step, the first left out."""
    steps = [e["dur"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")][1:]
    return float(max(steps) / statistics.median(steps))


def main() -> None:
    for side, (read_s, times) in SIDES.items():
        for _ in range(TRIES):
            with tempfile.TemporaryDirectory() as scratch:
                traces = record(Path(scratch), read_s, times)
            if max(map(unevenness, traces)) <= EVEN:
                break
        else:
            sys.exit(f"{side}: other work disturbs every try")
        out = Path(__file__).parent / side
        out.mkdir(exist_ok=True)
        for rank, trace in enumerate(traces):
            data = json.dumps(anonymous(trace), separators=(",", ":")).encode()
            (out / f"rank{rank}_trace.json.gz").write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()
