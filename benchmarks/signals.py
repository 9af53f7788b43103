"""What recording a step costs, and what reading the records of a whole job costs.

    python benchmarks/signals.py [writer] [room] [--quick]

writer: beside a bare `json.dumps` and `os.write` of the same record. room: `drill diagnose FOLDER` as a whole
process on made-up records, one rank of which drags; beside a bare `json.loads` of the same lines on one core.
Warm: one call after the other. Training: at the end of real steps of 10 ms. Shuffled: at the end of 10 ms
that touch megabytes of Python objects. Medians and 99th percentiles; share: of a 10 ms step, by the median;
ratio: to the bare one.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.worker import Signals, signal_file

STEP_S = 0.010
BARE = "json.dumps and os.write"
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


def measure(call: Callable[[int], None], steps: int, work: Callable[[], None]) -> list[float]:
    """Microseconds of `steps` calls, each after some other work."""
    took = []
    for number in range(steps):
        work()
        begun = time.perf_counter_ns()
        call(number)
        took.append((time.perf_counter_ns() - begun) / 1e3)
    return took


def training() -> Callable[[], None]:
    """A step of training a small network on one core, stretched to STEP_S by waiting as for a device."""
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        until = time.perf_counter() + STEP_S
        loss = model(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(max(0.0, until - time.perf_counter()))

    return step


def table(how: str, took: dict[str, list[float]]) -> None:
    reference = statistics.median(took[BARE])
    for name, values in took.items():
        middle, tail = statistics.median(values), statistics.quantiles(values, n=100)[98]
        share = f"{middle / STEP_S / 1e4:.2f} %"
        print(f"| {how} | {name} | {middle:.1f} us | {tail:.0f} us | {share} | {middle / reference:.1f} |")
    sys.stdout.flush()


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
    steps = 100 if quick else 400
    folder = Path(tempfile.mkdtemp(prefix="drill-bench-"))
    print("\n## Writing a record (`benchmarks/signals.py writer`)\n")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| caches | what | median | p99 | share | ratio |\n|---|---|---|---|---|---|")
    reference = bare(folder / "bare.jsonl")
    variants = {
        BARE: reference,
        "step, memory on": recorder(Signals(folder / "memory.jsonl", 0)),
        "step, memory off": recorder(Signals(folder / "plain.jsonl", 0, memory=False)),
        "step through the thread": recorder(through_thread(folder / "thread.jsonl")),
        "step of an inert writer": recorder(Signals.open()),
    }
    for how, work, count in (
        ("warm", lambda: None, 5000),
        ("training", training(), steps),
        ("shuffled", lambda: compute(time.perf_counter() + STEP_S), steps),
    ):
        table(how, {name: measure(call, count, work) for name, call in variants.items()})
    for chunks in (5_000, 50_000):
        fragment(chunks)
        path = folder / f"{chunks}.jsonl"
        work = training()
        took = measure(recorder(Signals(path, 0)), steps, work)
        read = path.read_text().count("mem_reserved_peak") / steps
        name = f"step, {chunks} free chunks in the heap (read in {read:.0%} of steps)"
        table("training", {BARE: measure(reference, steps, work), name: took})
    shutil.rmtree(folder)


RECORD = (
    '{"t":%.6f,"step":%d,"rank":%d,"step_time_s":%.6f,"loss":%.5f,"grad_norm":%.5f,"lr":0.0003,'
    '"consumed_samples":%d,"data_wait_s":%.6f,"compute_s":%.6f,"comm_wait_s":%.6f,'
    '"mem_allocated_peak":61234567890,"mem_reserved_peak":71234567890,"mem_inactive_split":1234567,'
    '"num_alloc_retries":0,"rss_bytes":%d,"stdout_bytes":%d,"digest":"%016x"}\n'
)
DRAGS = 5


def made(rank: int, steps: int) -> str:
    """One rank's records; rank DRAGS computes half as long again in the second half."""
    dice = random.Random(rank)
    shared = random.Random(0)
    lines = []
    for step in range(steps):
        slow = 0.15 if step >= steps // 2 else 0.0
        compute = 0.3 * dice.gauss(1, 0.01) + (slow if rank == DRAGS else 0)
        wait = 0.02 + (0 if rank == DRAGS else slow)
        lines.append(
            RECORD
            % (
                *(1764460000 + 0.4 * step, step, rank, 0.35 + slow, 2 + dice.random(), 1 + dice.random()),
                *(512 * (step + 1), 0.001 * dice.random(), compute, wait),
                *(12 << 30, 200 * step, shared.getrandbits(64)),
            )
        )
    return "".join(lines)


def write_job(folder: Path, ranks: int, steps: int) -> int:
    """Records of a whole job; most ranks are copies of eight others under their own number. Returns bytes."""
    folder.mkdir(parents=True)
    texts = {rank: made(rank, steps) for rank in range(8)}
    size = 0
    for rank in range(ranks):
        model = rank if rank < 8 else (rank % 8 if rank % 8 != DRAGS else 0)
        text = texts[model].replace(f'"rank":{model},', f'"rank":{rank},')
        size += (folder / f"rank_{rank}.jsonl").write_text(text)
    return size


def bare_seconds(folder: Path) -> float:
    """Seconds a record of reading, splitting and `json.loads`, on one core."""
    begun, count = time.perf_counter(), 0
    for rank in range(4):
        for line in (folder / f"rank_{rank}.jsonl").read_bytes().splitlines():
            json.loads(line)
            count += 1
    return (time.perf_counter() - begun) / count


def room(quick: bool) -> None:
    print("\n## Diagnosing step records (`benchmarks/signals.py room`)\n")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| ranks x steps | size | seconds | peak memory | records a second | bare json.loads / this |")
    print("|---|---|---|---|---|---|")
    sizes = ((64, 2000), (128, 5000)) if quick else ((128, 10_000), (512, 10_000), (1024, 10_000))
    for ranks, steps in sizes:
        folder = Path(tempfile.mkdtemp(prefix="drill-bench-"))
        size = write_job(folder / "attempt_0", ranks, steps)
        bare_s = bare_seconds(folder / "attempt_0") * ranks * steps
        took, peak = run_drill(folder)
        rate = ranks * steps / took
        print(
            f"| {ranks} x {steps} | {size / 1e9:.2f} GB | {took:.1f} | {peak / 2**30:.2f} GiB "
            f"| {rate:,.0f} | {bare_s / took:.1f} |"
        )
        sys.stdout.flush()
        shutil.rmtree(folder)


def run_drill(folder: Path) -> tuple[float, int]:
    """Seconds and peak resident bytes of one `drill diagnose`, whose answer is checked."""
    begun = time.perf_counter()
    command = (sys.executable, "-m", "harness.cli", "diagnose", str(folder), "--json")
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    answer = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - begun
    if (answer["kind"], answer["culprits"]) != ("straggler", [DRAGS]):
        sys.exit(f"wrong answer ({status}): {answer['summary']}")
    return took, usage.ru_maxrss * 1024


PARTS: dict[str, Callable[[bool], None]] = {"writer": writer, "room": room}


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
