"""Reading a profiler trace against `json.load` of the same file in the same run; then the whole command.

    python benchmarks/traces.py [--mb 120]

The trace is generated (tests/diagnose/traces/generate.py): Kineto's events of a GPU job, never recorded on
one. Each reading is a process of its own, in turns; its peak memory counts from what its imports take.
"""

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROUNDS = 3
DRILL = (sys.executable, "-m", "harness.cli", "diagnose")

MEASURED = """
import json, sys, time
from pathlib import Path
from harness.diagnose.traces.find import find_traces
from harness.diagnose.traces.prepare import prepare
path = Path(sys.argv[2])
def rss():
    (line,) = (l for l in open("/proc/self/status") if l.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
before, start = rss(), time.perf_counter()
if sys.argv[1] == "json.load":
    with path.open("rb") as file:
        events = len(json.load(file)["traceEvents"])
else:
    events = len(prepare(find_traces([path])[0]).steps)
print(json.dumps([time.perf_counter() - start, rss() - before, events]))
"""


def write_large(path: Path, megabytes: int) -> None:
    """A trace of at least so many megabytes: the same ten steps again and again, each time later."""
    sys.path.insert(0, str(ROOT))
    from tests.diagnose.traces.generate import Work, generated

    trace = generated(Work(layers=64), steps=10)
    span = trace.clock
    document = trace.document()
    events = document.pop("traceEvents")
    assert isinstance(events, list)
    with path.open("w") as out:
        out.write(json.dumps(document)[:-1] + ',\n  "traceEvents": [\n')
        again = 0
        while again == 0 or out.tell() < megabytes * 1_000_000:
            for event in events:
                moved = {**event, "ts": round(event["ts"] + again * span, 3)}
                if event["name"].startswith("ProfilerStep#"):
                    moved["name"] = f"ProfilerStep#{int(event['name'][13:]) + 10 * again}"
                text = json.dumps(moved, separators=(",\n    ", ": "))
                out.write(f"  {text},\n")
            again += 1
        last = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1.0}
        out.write(f"  {json.dumps(last)}\n  ]\n}}\n")


def measure(what: str, path: Path) -> tuple[float, float]:
    """Seconds and MiB of memory that reading took."""
    command = (sys.executable, "-c", MEASURED, what, str(path))
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    seconds, mib, _ = json.loads(done.stdout)
    return seconds, mib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=120, help="size of the generated trace")
    work = Path(tempfile.mkdtemp(prefix="drill-bench-"))
    plain = work / "then" / "rank0_trace.json"
    plain.parent.mkdir()
    write_large(plain, parser.parse_args().mb)
    size = plain.stat().st_size / 1e6
    packed = work / "now" / "rank0_trace.json.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes(), 6))
    readings: tuple[tuple[str, Callable[[], tuple[float, float]]], ...] = (
        ("json.load alone", lambda: measure("json.load", plain)),
        ("drill: read and reduce", lambda: measure("drill", plain)),
        ("drill, gzip", lambda: measure("drill", packed)),
    )
    results: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in readings}
    for _ in range(ROUNDS):
        for name, read in readings:
            results[name].append(read())
    stock_s, stock_mib = (statistics.median(r[i] for r in results["json.load alone"]) for i in (0, 1))
    print(f"a generated trace of {size:.0f} MB, medians of {ROUNDS}\n")
    print("| what | seconds | MB/s | time to json.load | peak MiB | memory to json.load | to the file |")
    print("|---|---|---|---|---|---|---|")
    for name, measured in results.items():
        seconds, mib = (statistics.median(r[i] for r in measured) for i in (0, 1))
        shares = f"{seconds / stock_s:.2f} | {mib:.0f} | {mib / stock_mib:.3f} | {mib * 1.048576 / size:.2f}"
        print(f"| {name} | {seconds:.2f} | {size / seconds:.0f} | {shares} |", flush=True)
    command = (*DRILL, str(packed.parent), "--baseline", str(plain.parent), "--json")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    print(f"\nthe same trace on both sides: {json.loads(done.stdout)['kind']}")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
