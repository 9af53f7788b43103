"""What `drill collect` costs the ranks: their pauses while collected against while left alone.

python benchmarks/collect.py [--rounds 5]

A rank spins on the clock in Python and notes every gap between two readings. Each round has some seconds
in which nobody looks, and then those in which `drill collect` runs as a process of its own. Compared is the
longest gap of each second. How often a rank was stopped is counted by the kernel: a thread that only spins
never gives up its core by itself, so each voluntary switch is somebody stopping it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

DRILL = (sys.executable, "-m", "harness.cli")
ALONE_S = 5.0
SPIN = """
import json, os, signal, time
gaps = []

def end(*_):
    print(json.dumps(gaps), flush=True)
    os._exit(0)

signal.signal(signal.SIGTERM, end)
last = time.perf_counter()
while True:
    now = time.perf_counter()
    if now - last > 0.0001:
        gaps.append((time.time(), now - last))
    last = now
"""


@dataclass
class Seen:
    """Longest gaps of each second in milliseconds, and how often ranks were stopped."""

    alone: list[float] = field(default_factory=list)
    collected: list[float] = field(default_factory=list)
    stops_alone: int = 0
    stops: int = 0
    cpu_s: list[float] = field(default_factory=list)


def longest(gaps: list[tuple[float, float]], start: float, end: float) -> list[float]:
    """The longest gap of each whole second from `start` to `end`, milliseconds."""
    seconds = int(end - start)
    return [
        1e3 * max((gap for at, gap in gaps if start + n <= at < start + n + 1), default=0.0)
        for n in range(seconds)
    ]


def switches(spinners: "list[subprocess.Popen[str]]") -> int:
    return sum(psutil.Process(s.pid).num_ctx_switches().voluntary for s in spinners)


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one_round(ranks: int, bundle: Path, seen: Seen) -> None:
    spinners = [
        subprocess.Popen(
            (sys.executable, "-c", SPIN),
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    time.sleep(1.0)
    alone, before = time.time(), switches(spinners)
    time.sleep(ALONE_S)
    begin, stops, cpu_s = time.time(), switches(spinners), children_cpu_s()
    pids = ",".join(str(spinner.pid) for spinner in spinners)
    subprocess.run((*DRILL, "collect", "--pid", pids, "--out", str(bundle), "--json"), capture_output=True)
    end = time.time()
    seen.stops += switches(spinners) - stops
    seen.stops_alone += stops - before
    seen.cpu_s.append(children_cpu_s() - cpu_s)
    for spinner in spinners:
        spinner.terminate()
        gaps = json.loads(spinner.communicate()[0])
        seen.alone += longest(gaps, alone, begin)
        seen.collected += longest(gaps, begin, end)


def cell(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{statistics.median(ordered):.2f} ms ({ordered[0]:.2f} - {ordered[-1]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    cores = os.cpu_count() or 1
    print(f"{cores} cores, {rounds} rounds; longest pause of a second: median (least - most)\n")
    print("| ranks that spin | alone | collected | switches alone | collected | CPU that collect took |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="drill-bench-") as work:
        for ranks in sorted({1, cores}):
            seen = Seen()
            for number in range(rounds):
                one_round(ranks, Path(work) / f"{ranks}-{number}", seen)
            cpu_s = statistics.median(seen.cpu_s)
            cells = (cell(seen.alone), cell(seen.collected), seen.stops_alone, seen.stops, f"{cpu_s:.2f} s")
            print(f"| {ranks} | " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
