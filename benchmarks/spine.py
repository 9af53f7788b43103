"""From command to verdict: whole processes, medians, beside the seed's way in the same run.

python benchmarks/spine.py [--runs 5]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
DRILL = (sys.executable, "-m", "harness.cli")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")

# The overhead of the worker toolkit a step: the loop with a harness around it against a bare loop.
OVERHEAD = """
import os, tempfile, time
from pathlib import Path
from harness.worker.environment import RankEnvironment
from harness.worker.registration import Registration
from harness.worker.session import Session
from harness.worker.signals import Signals
import contextlib, io
env = RankEnvironment.read({"RANK": "1"})
session = Session(env, Registration(env), Signals(Path(tempfile.mkdtemp()) / "rank_1.jsonl", 1), None)
fault = session.arm("none", (0,), 0)
n = 20000
start = time.perf_counter()
for step in session.steps(n):
    fault.due(step)
with_us = time.perf_counter() - start
start = time.perf_counter()
for step in range(n):
    pass
print((with_us - (time.perf_counter() - start)) / n * 1e6)
"""


def timed(command: tuple[str, ...], cwd: Path, **kwargs: object) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, **kwargs)  # type: ignore[call-overload]
    return time.perf_counter() - start, done.stdout + done.stderr


def row(name: str, values: list[float], unit: str = "s") -> None:
    low, mid, high = min(values), statistics.median(values), max(values)
    print(f"| {name} | {mid:.2f} {unit} | {low:.2f} - {high:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    work = Path(tempfile.mkdtemp(prefix="drill-bench-"))
    print(f"{os.cpu_count()} cores, medians of {runs}\n\n| what | median | range |\n|---|---|---|")

    row("drill --help", [timed((*DRILL, "--help"), work)[0] for _ in range(runs)])
    for mode in ("size", "skip"):
        walls, inner = [], []
        for _ in range(runs):
            command = (*DRILL, "run", "fr_hang", "--culprit", "5", "--mode", mode, "--json")
            start = time.perf_counter()
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=True)
            walls.append(time.perf_counter() - start)
            inner.append(json.loads(done.stdout)["seconds"]["fault_to_diagnosis"])
        row(f"drill run fr_hang --culprit 5 --mode {mode}: command to verdict", walls)
        row(f"the same: fault to diagnosis ({mode})", inner)

    script = ROOT / "drills" / "fr_hang.py"
    plain = (*TORCHRUN, "--standalone", "--nproc-per-node", "8", str(script), "--culprit", "5")
    seconds, _ = timed((*plain, "--mode", "type", "--collective-timeout-s", "30"), work)
    row("the seed's way: torchrun and a 30 s timeout, to the end of the ranks (once)", [seconds])
    dumps = sorted((work / "runs" / "latest").resolve().glob("flight_recorder/attempt_0/*"))
    folder = work / "dumps"
    folder.mkdir()
    for dump in dumps:
        shutil.copy(dump, folder)
    stock = (sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder))
    seconds, said = timed((*stock, "-p", "rank_"), work)
    last = (said.strip().splitlines() or ["nothing"])[-1]
    row(f"then the stock analyzer on the same dumps (says: `{last}`)", [seconds])

    command = (*DRILL, "run", "fr_hang", "--nproc", "64", "--set", "numel=4096", "--mode", "type", "--json")
    seconds, said = timed(command, work)
    row("64 ranks, numel=4096, mode type: command to verdict (once)", [seconds])
    overhead = [float(timed((sys.executable, "-c", OVERHEAD), work)[1].split()[-1]) for _ in range(runs)]
    row("worker toolkit a step", overhead, "us")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
