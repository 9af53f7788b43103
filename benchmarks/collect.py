"""What `drill collect` costs the ranks: their longest pause while collected against while left alone.

python benchmarks/collect.py [--rounds 5]

A rank spins on the clock in Python and notes every gap between two readings. Each round has a window in
which nobody looks and one, equally long, in which `drill collect` runs as a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DRILL = (sys.executable, "-m", "harness.cli")

SPIN = """
import json, sys, time
end, gaps = time.time() + float(sys.argv[1]), []
last = time.perf_counter()
while time.time() < end:
    now = time.perf_counter()
    if now - last > 0.0002:
        gaps.append((time.time(), now - last))
    last = now
print(json.dumps(gaps))
"""


def longest_ms(gaps: list[tuple[float, float]], window: tuple[float, float]) -> float:
    return 1e3 * max((gap for at, gap in gaps if window[0] <= at <= window[1]), default=0.0)


def lost_ms(gaps: list[tuple[float, float]], window: tuple[float, float]) -> float:
    return 1e3 * sum(gap for at, gap in gaps if window[0] <= at <= window[1])


def one_round(ranks: int, work: Path, number: int) -> dict[str, list[float]]:
    window_s = 6.0
    spinners = [
        subprocess.Popen(
            (sys.executable, "-c", SPIN, str(2 * window_s + 2)),
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    time.sleep(1.0)
    start = time.time()
    time.sleep(window_s)
    alone = (start, time.time())
    pids = [option for spinner in spinners for option in ("--pid", str(spinner.pid))]
    out = work / f"{ranks}-{number}"
    start = time.time()
    subprocess.run((*DRILL, "collect", *pids, "--out", str(out), "--json"), capture_output=True)
    time.sleep(max(0.0, start + window_s - time.time()))
    collected = (start, time.time())
    found: dict[str, list[float]] = {"alone": [], "collected": [], "lost alone": [], "lost collected": []}
    for spinner in spinners:
        gaps = json.loads(spinner.communicate()[0])
        found["alone"].append(longest_ms(gaps, alone))
        found["collected"].append(longest_ms(gaps, collected))
        found["lost alone"].append(lost_ms(gaps, alone) / window_s)
        found["lost collected"].append(lost_ms(gaps, collected) / window_s)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    cores = os.cpu_count() or 1
    print(f"{cores} cores, {rounds} rounds, median over rounds of the worst rank (the worst round)\n")
    print(
        "| ranks that spin | longest pause, alone | longest pause, collected | time lost, alone | collected |"
    )
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="drill-bench-") as work:
        for ranks in sorted({1, cores}):
            seen = [one_round(ranks, Path(work), number) for number in range(rounds)]
            worst = {key: [max(one[key]) for one in seen] for key in seen[0]}
            cells = [f"{statistics.median(worst[key]):.2f} ms ({max(worst[key]):.2f})" for key in worst]
            cells[2:] = [cell.replace(" ms", " ms/s") for cell in cells[2:]]
            print(f"| {ranks} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
