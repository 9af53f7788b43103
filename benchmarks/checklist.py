"""What a gate costs in a launch, and how long a whole rehearsal of the shipped checklist takes.

    python benchmarks/checklist.py [--rounds 15] [--history 50] [--rehearse]

The gate: medians of whole processes, in turn with a bare interpreter that imports click and PyYAML, and their
ratio. The rehearsal: each item's seconds, and the share of the six minutes that it may take on two cores.
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

from harness.checklist.fingerprint import take_fingerprint
from harness.checklist.schema import read_checklist
from harness.checklist.signing import sign
from harness.checklist.standing import Now
from harness.checklist.store import Store
from harness.jobenv import JobEnvironment
from harness.model.checklist import ChecklistRun, ItemOutcome, ItemResult, StepResult

LIMIT_S = 360.0
"""What a whole rehearsal may take on two cores."""

CHECKLIST = Path(__file__).parent.parent / "checklists" / "pretrain.yaml"


def filled(store: Store, history: int) -> None:
    """So many runs in which every item passed, and a signature for the last."""
    checklist = read_checklist(CHECKLIST)
    fingerprint = take_fingerprint(checklist, JobEnvironment(), store.folder)
    store.folder.mkdir(parents=True)
    for _ in range(history):
        step = StepResult("probe x", ItemOutcome.PASS, "ok", {f"figure_{i}": i / 7 for i in range(12)})
        items = tuple(
            ItemResult(item.id, ItemOutcome.PASS, "ok", (step, step), time.time(), 1.0)
            for item in checklist.items
        )
        store.append(ChecklistRun(checklist.name, fingerprint, time.time(), "host", items, True))
    assert sign(checklist, store, Now(fingerprint, time.time()), "Ada").path


def timed(*command: str) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--history", type=int, default=50)
    parser.add_argument("--rehearse", action="store_true", help="also run the whole checklist, once")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="drill-bench-"))
    try:
        filled(Store.of("pretrain", folder), args.history)
        bare, gate = [], []
        for _ in range(args.rounds):
            bare.append(timed(sys.executable, "-c", "import click, yaml"))
            gate.append(
                timed(sys.executable, "-m", "harness.cli", "gate", str(CHECKLIST), "--out", str(folder))
            )
    finally:
        shutil.rmtree(folder)
    reference, median = statistics.median(bare), statistics.median(gate)
    print("\n## The checklist (`benchmarks/checklist.py`)\n")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| what | seconds | ratio to a bare interpreter |")
    print("|---|---|---|")
    print(f"| python, click and PyYAML | {reference:.2f} | 1.0 |")
    print(
        f"| drill gate, 13 items, {args.history} runs of history | {median:.2f} | {median / reference:.1f} |"
    )
    if args.rehearse:
        rehearse()


def rehearse() -> None:
    """Run the whole checklist as a user on a laptop does."""
    with tempfile.TemporaryDirectory(prefix="drill-bench-") as folder:
        job = Path(folder) / "job.env"
        job.write_text(f"TORCH_FR_DUMP_TEMP_FILE={folder}/dumps/rank_\nTORCH_NCCL_ASYNC_ERROR_HANDLING=3\n")
        command = (sys.executable, "-m", "harness.cli", "checklist", "run", str(CHECKLIST), "--json")
        begun = time.perf_counter()
        done = subprocess.run(
            (*command, "--env-file", str(job), "--out", folder), capture_output=True, text=True
        )
        took = time.perf_counter() - begun
    print("\n| item | outcome | seconds |")
    print("|---|---|---|")
    for item in json.loads(done.stdout)["items"]:
        print(f"| {item['id']} | {item['outcome'].replace('_', ' ')} | {item['seconds']:.1f} |")
    print(f"| all of it | | {took:.0f}, {took / LIMIT_S:.0%} of what it may take |")


if __name__ == "__main__":
    main()
