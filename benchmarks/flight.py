"""`drill diagnose DUMPS` against torchfrtrace on the same files in the same run; then far larger ones.

    python benchmarks/flight.py [--quick]

Dumps are generated: a job over tensor, data and world groups, frames and sizes as torch records them,
one rank whose last collective, a world all-reduce, has another size. Whole processes, start-up included.
"""

import argparse
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

DRILL = (sys.executable, "-m", "harness.cli", "diagnose")
STOCK = (sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace")
# What one step of one rank calls: operation, group, line. Tensor groups of eight, data groups across them.
STEP = (
    ("all_reduce", "tp", 20),
    ("all_reduce", "tp", 30),
    ("_reduce_scatter_base", "dp", 40),
    ("_all_gather_base", "dp", 50),
    ("all_reduce", "world", 60),
)
TP = 8
CULPRIT = 5


def frames(line: int, depth: int = 18) -> list[dict[str, object]]:
    inside = [
        {"name": f"call_{i}", "filename": "/v/site-packages/torch/distributed/distributed_c10d.py", "line": i}
        for i in range(depth // 2)
    ]
    own = [{"name": f"layer_{i}", "filename": "/job/train.py", "line": line + i} for i in range(depth // 2)]
    return inside + own


def write(folder: Path, ranks: int, entries: int) -> None:
    folder.mkdir()
    stacks = {line: frames(line) for _, _, line in STEP}
    for rank in range(ranks):
        groups = {
            "world": ("0", "default_pg", list(range(ranks))),
            "tp": (str(1 + rank // TP), "mesh_tp", list(range(rank // TP * TP, rank // TP * TP + TP))),
            "dp": (str(1 + ranks // TP + rank % TP), "mesh_dp", list(range(rank % TP, ranks, TP))),
        }
        config = {name: {"name": name, "desc": d, "ranks": str(m)} for name, d, m in groups.values()}
        counts = dict.fromkeys(groups, 0)
        records = []
        for i in range(entries):
            op, kind, line = STEP[i % len(STEP)]
            name, desc, members = groups[kind]
            counts[kind] += 1
            last = i == entries - 1
            numel = 1 if last and rank == CULPRIT else 1 << (10 + i % 7)
            records.append(
                {
                    "frames": stacks[line],
                    "record_id": i,
                    "pg_id": int(name),
                    "process_group": (name, desc),
                    "collective_seq_id": counts[kind],
                    "p2p_seq_id": 0,
                    "op_id": i + 1,
                    "profiling_name": f"nccl:{op}",
                    "time_created_ns": 1_700_000_000_000_000_000 + i * 1_000_000,
                    "input_sizes": [[numel * (len(members) if "scatter" in op else 1)]],
                    "input_dtypes": ["Float"],
                    "output_sizes": [[numel * (len(members) if "gather" in op else 1)]],
                    "output_dtypes": ["Float"],
                    "state": "scheduled" if last else "completed",
                    "time_discovered_started_ns": None,
                    "time_discovered_completed_ns": None,
                    "retired": not last,
                    "timeout_ms": 600000,
                    "is_p2p": False,
                }
            )
        dump = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": records}
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))


def timed(command: tuple[str, ...]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    return time.perf_counter() - start, done.stdout + done.stderr


def peak(command: tuple[str, ...]) -> tuple[float, float, str]:
    """Seconds, peak memory of all processes together in GiB (proportional set size), and output."""
    start = time.perf_counter()
    most = 0
    with tempfile.TemporaryFile("w+") as out:
        process = psutil.Popen(command, stdout=out, stderr=out, text=True)
        while process.poll() is None:
            most = max(most, _pss_bytes(process))
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        out.seek(0)
        return seconds, most / (1 << 30), out.read()


def _pss_bytes(root: psutil.Process) -> int:
    """Memory of a process and all its children, shared pages counted once."""
    total = 0
    with suppress(psutil.Error):
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only 128 ranks x 2000 entries")
    quick = parser.parse_args().quick
    work = Path(tempfile.mkdtemp(prefix="drill-bench-"))
    print("| ranks x entries | seconds | peak GiB (all processes) | right? |\n|---|---|---|---|")
    folder = work / "d128"
    write(folder, 128, 2000)
    ours = []
    for _ in range(5):
        seconds, gib, said = peak((*DRILL, str(folder)))
        ours.append(seconds)
    median = sorted(ours)[2]
    print(
        f"| 128 x 2000 (median of 5) | {median:.2f} | {gib:.2f} | {'culprit: rank 5' in said} |", flush=True
    )
    seconds, said = timed((*STOCK, str(folder), "-p", "rank_"))
    print(f"| the same, torchfrtrace (once) | {seconds:.1f} | | {'Culprit rank 5' in said} |", flush=True)
    print(f"\nratio torchfrtrace / drill: {seconds / median:.1f}\n", flush=True)
    shutil.rmtree(folder)
    for ranks, entries in () if quick else ((1024, 2000), (1024, 20000)):
        folder = work / f"d{ranks}x{entries}"
        write(folder, ranks, entries)
        size = sum(f.stat().st_size for f in folder.iterdir()) / (1 << 30)
        seconds, gib, said = peak((*DRILL, str(folder)))
        right = "culprit: rank 5" in said
        print(
            f"| {ranks} x {entries} ({size:.1f} GiB of dumps) | {seconds:.1f} | {gib:.2f} | {right} |",
            flush=True,
        )
        shutil.rmtree(folder)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
