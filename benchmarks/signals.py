"""What recording a step costs: the writer beside a bare `json.dumps` and `os.write` of the same record.

python benchmarks/signals.py [writer] [--quick]

Every variant is measured in the same loop, in turn, at the end of steps of 10 ms that compute: caches are
as cold as in training. Medians and 99th percentiles; share: of a 10 ms step.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.worker import Signals, signal_file

STEP_S = 0.010
FIELDS: dict[str, float] = {
    "loss": 2.345678,
    "grad_norm": 1.234567,
    "lr": 0.0003,
    "tps": 123456.7,
    "consumed_samples": 1 << 20,
}


def compute(until: float) -> None:
    """Touch memory until a moment, as a step does."""
    block = list(range(100_000))
    while time.perf_counter() < until:
        random.shuffle(block[:2000])
        sum(block)


def bare(path: Path) -> Callable[[int], None]:
    """The reference: a record with as many keys, dumped and written without any care."""
    names = ("t", "step", "rank", "step_time_s", "cpu_s", "preemptions", "rss_bytes", "stdout_bytes")
    more = ("mem_allocated_peak", "mem_reserved_peak", "mem_inactive_split")
    record: dict[str, float] = {name: 1.0 / 3 if name.endswith("_s") else 1 << 30 for name in (*names, *more)}
    record |= FIELDS
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def step(number: int) -> None:
        os.write(fd, (json.dumps({**record, "t": time.time(), "step": number}) + "\n").encode())

    return step


def through_thread(path: Path) -> Signals:
    """A writer that believes to be on a network filesystem."""
    real, signal_file.on_network = signal_file.on_network, lambda _: True
    try:
        return Signals(path, 0)
    finally:
        signal_file.on_network = real


def recorder(signals: Signals) -> Callable[[int], None]:
    return lambda number: signals.step(number, **FIELDS)


def measure(variants: dict[str, Callable[[int], None]], steps: int) -> dict[str, list[float]]:
    """Microseconds of every call, the variants in a new order each step."""
    took: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    for number in range(steps):
        compute(time.perf_counter() + STEP_S)
        random.shuffle(names)
        for name in names:
            call = variants[name]
            begun = time.perf_counter_ns()
            call(number)
            took[name].append((time.perf_counter_ns() - begun) / 1e3)
    return took


def row(name: str, took: list[float], reference: float) -> None:
    middle = statistics.median(took)
    tail = statistics.quantiles(took, n=100)[98]
    mean = statistics.fmean(took)
    share = f"{mean / STEP_S / 1e4:.2f} %"
    print(f"| {name} | {middle:.1f} us | {tail:.1f} us | {share} | {middle / reference:.1f} |", flush=True)


def fragment(chunks: int) -> None:
    """Leave free chunks in the heap, as months of allocations of all sizes do."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    blocks = [libc.malloc(1500 + i * 37 % 3000) for i in range(2 * chunks)]
    for block in blocks[::2]:
        libc.free(block)


def writer(quick: bool) -> None:
    steps = 200 if quick else 1000
    folder = Path(tempfile.mkdtemp(prefix="drill-bench-"))
    print(f"\n## Writing a record (`benchmarks/signals.py writer`)\n\n{steps} steps of 10 ms\n")
    print("| what | median | p99 | share (mean) | ratio |\n|---|---|---|---|---|")
    variants = {
        "json.dumps and os.write": bare(folder / "bare.jsonl"),
        "step, memory on": recorder(Signals(folder / "memory.jsonl", 0)),
        "step, memory off": recorder(Signals(folder / "plain.jsonl", 0, memory=False)),
        "step through the thread": recorder(through_thread(folder / "thread.jsonl")),
        "step of an inert writer": recorder(Signals.open()),
    }
    took = measure(variants, steps)
    reference = statistics.median(took["json.dumps and os.write"])
    for name, values in took.items():
        row(name, values, reference)

    import torch

    torch.randn(256, 256) @ torch.randn(256, 256)
    took = measure({"step": recorder(Signals(folder / "torch.jsonl", 0))}, steps // 2)
    row("step, memory on, torch imported", took["step"], reference)
    for chunks in (5_000, 50_000):
        fragment(chunks)
        took = measure({"step": recorder(Signals(folder / f"{chunks}.jsonl", 0))}, steps)
        read = (folder / f"{chunks}.jsonl").read_text().count("mem_reserved_peak")
        row(
            f"the same, {chunks} free chunks in the heap (read in {read} of {steps} steps)",
            took["step"],
            reference,
        )

    stop = threading.Event()
    hog = threading.Thread(target=lambda: [sum(range(500)) for _ in iter(stop.is_set, True)], daemon=True)
    hog.start()
    took = measure(
        {"bare": variants["json.dumps and os.write"], "step": variants["step, memory on"]}, steps // 4
    )
    stop.set()
    hog.join()
    row("json.dumps and os.write beside a thread that computes in Python", took["bare"], reference)
    row("step, memory on, beside it", took["step"], reference)
    shutil.rmtree(folder)


PARTS: dict[str, Callable[[bool], None]] = {"writer": writer}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    unknown = set(args.parts) - PARTS.keys()
    if unknown:
        sys.exit(f"no such part: {', '.join(unknown)}")
    for part in args.parts:
        PARTS[part](args.quick)


if __name__ == "__main__":
    main()
