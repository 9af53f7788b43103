"""What triage of log files costs, beside grep with the patterns that a person would look for.

    python benchmarks/logs.py [--gib 1] [--rounds 3] [--size 10] [--keep FOLDER]

Two sets of 64 files of training output with prefixes: one interesting line in 2000, and one in 50. Over each,
`grep -E` with the three tiers of patterns and `drill diagnose FOLDER` as a whole process, one after the
other, so that both meet the same load and warm caches. ratio: drill's seconds by grep's, medians. CPU: user
and system time, of drill's processes together. Peak memory: of the process and its children together, shared
pages counted once (PSS), in a run of its own, since to look costs time. With --size 10 also a tenth of the
bytes, which should take a tenth of the time. What drill answers does not matter here.
"""

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

FILES = 64
CHUNK_BYTES = 1 << 20
SETS = {"one line in 2000": 2000, "one line in 50": 50}

TIERS = (
    r"NCCL.*timeout",
    "Watchdog caught collective operation timeout",
    "taking the entire process down",
    *("SIGTERM", "SIGKILL", "SIGABRT", "CUDA error", "CUDA out of memory", "OOM"),
    *("RuntimeError", "Exception.*Error", "AISBatchLoaderError", "StopIteration"),
    r"Traceback \(most recent call last\)",
    *("Connection reset", "Connection broken", "Connection refused"),
    "retrying [0-9]/[0-9]",
    *("timed out", "deadline exceeded", "broken pipe"),
)
"""Process killers, crashes of the training loop, data loading and input: what a person greps for."""

USUAL = (
    "[default{local}]:2026-01-07 03:{m:02d}:{s:02d},{ms:03d} - INFO - train.py:212 - tokens {n} lr {x:.6f}",
    "{rank}: 2026-01-07 03:{m:02d}:{s:02d} loader: shard {n:07d}.tar opened, {local} samples, {x:.3f} s",
    "[rank{rank}]:03:{m:02d}:{s:02d} | INFO | data.sampler | epoch {local} sample {n} bucket {m} pad {x:.4f}",
    "  warnings.warn('bucket {n} holds {ms} samples of length {m}, {x:.4f} of which is padding')",
    "2026-01-07T03:{m:02d}:{s:02d}.{ms:03d}Z worker-{local} shard {n} read: score {x:.4f}, {ms} rows",
)
INTERESTING = (
    "[rank{rank}]: RuntimeError: shape '[{n}, {m}]' is invalid for input of size {ms}",
    "[default{local}]:2026-01-07 03:{m:02d}:{s:02d},{ms:03d} - WARN - Connection reset by peer, retrying 1/5",
    "[rank{rank}]:[E107 03:{m:02d}:{s:02d}.{ms:06d} ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=1800000) ran for 18000{m} milliseconds before timing out.",
    "[default{local}]:Traceback (most recent call last):",
    "{rank}: step {n}: request to storage timed out after {ms} ms",
)


def chunk(seed: int, rank: int, every: int) -> bytes:
    """About a MiB of lines, one in `every` of them interesting."""
    dice = random.Random(seed)
    lines: list[str] = []
    size = 0
    while size < CHUNK_BYTES:
        text = dice.choice(INTERESTING if dice.randrange(every) == 0 else USUAL)
        values = {"m": dice.randrange(60), "s": dice.randrange(60), "ms": dice.randrange(1000)}
        line = text.format(rank=rank, local=rank % 8, n=dice.randrange(100_000), x=dice.random(), **values)
        lines.append(line)
        size += len(line) + 1
    return ("\n".join(lines) + "\n").encode()


def write_set(folder: Path, size: int, every: int) -> int:
    """Files of one job, together about `size` bytes; returns what they are. Chunks come again, rotated."""
    folder.mkdir(parents=True)
    written = 0
    chunks = [chunk(seed, seed, every) for seed in range(8)]
    for number in range(FILES):
        dice = random.Random(number)
        with (folder / f"error-4242-{number}.out").open("wb") as file:
            left = size // FILES
            while left > 0:
                data = dice.choice(chunks)
                # Begun at another line each time, so that no two stretches are alike.
                begin = data.find(b"\n", dice.randrange(CHUNK_BYTES // 2)) + 1
                left -= file.write(data[begin : begin + left] if left < len(data) - begin else data[begin:])
            written += file.tell()
    return written


def peak_of(process: psutil.Process, stop: threading.Event, found: list[int]) -> None:
    """Watch a process and its children; the most memory that they held together."""
    while not stop.wait(0.05):
        total = 0
        try:
            for one in (process, *process.children(recursive=True)):
                total += one.memory_full_info().pss
        except psutil.Error:
            continue
        found[0] = max(found[0], total)


def timed(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of a command, by the clock and of CPU. Into a file: grep into nothing stops at once."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, env=environment, check=False)
    took = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def held(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Peak bytes of a command."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as run:
        stop, found = threading.Event(), [0]
        watcher = threading.Thread(target=peak_of, args=(psutil.Process(run.pid), stop, found))
        watcher.start()
        run.wait()
        stop.set()
        watcher.join()
    return found[0]


def grep(folder: Path) -> list[str]:
    patterns = [word for pattern in TIERS for word in ("-e", pattern)]
    return ["grep", "-E", "-n", *patterns, *map(str, sorted(folder.iterdir()))]


def compared(name: str, folder: Path, size: int, rounds: int) -> None:
    drill = [sys.executable, "-m", "harness.cli", "diagnose", str(folder), "--json"]
    runs = {
        "grep, UTF-8": (grep(folder), {**os.environ, "LC_ALL": "C.UTF-8"}),
        # Words are bytes to grep then, and that is its fast way.
        "grep, LC_ALL=C": (grep(folder), {**os.environ, "LC_ALL": "C"}),
        # What is installed has its bytecode: so has this, after the first run, which is for memory.
        "drill": (drill, {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}),
    }
    peak = held(*runs["drill"])
    took: dict[str, list[float]] = {what: [] for what in runs}
    cpu: list[float] = []
    for _ in range(rounds):
        for what, (command, environment) in runs.items():
            seconds, used = timed(command, environment)
            took[what].append(seconds)
            cpu += [used] if what == "drill" else []
    middle = {what: statistics.median(values) for what, values in took.items()}
    ratios = [middle["drill"] / middle[what] for what in took if what != "drill"]
    print(
        f"| {name} | {size / 2**30:.2f} GiB | "
        + " | ".join(f"{seconds:.2f} s" for seconds in middle.values())
        + f" | {ratios[0]:.2f} / {ratios[1]:.2f} | {statistics.median(cpu):.2f} s | {peak / 2**20:.0f} MiB |"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0, help="size of each set")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=1, help="also measure this part of each set")
    parser.add_argument("--keep", type=Path, help="folder for the files; left there, and used if they are")
    args = parser.parse_args()
    root = args.keep or Path(tempfile.mkdtemp(prefix="drill-bench-"))
    print("\n## Triage of logs (`benchmarks/logs.py`)\n")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print(
        "| interesting | size | grep, UTF-8 | grep, LC_ALL=C | drill | ratios | CPU of drill | peak memory |"
    )
    print("|---|---|---|---|---|---|---|---|")
    try:
        for part in sorted({args.size, 1}, reverse=True):
            for name, every in SETS.items():
                folder = root / f"{every}-{args.gib}-{part}"
                size = int(args.gib * 2**30 / part)
                if not folder.exists():
                    write_set(folder, size, every)
                written = sum(file.stat().st_size for file in folder.iterdir())
                compared(name, folder, written, args.rounds)
    finally:
        if not args.keep:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
