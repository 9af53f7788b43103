"""What the exporter costs, and how long a page takes, link by link.

    python benchmarks/monitor.py [exporter] [page] [--ranks 1024] [--seconds 30] [--threshold S]

exporter: `drill monitor export` as its own process, bound to one core, follows `--ranks` files that another
process appends to once a second (20 fields a record), and is scraped every five seconds. CPU: user and system
time of the process over the wall time. Scrape: from the request to the last byte. page: `drill run page` with
the real rule (90 s) unless `--threshold` shortens it, each mode once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

NAMES = (
    *("step_time_s", "cpu_s", "preemptions", "rss_bytes", "rss_shared_bytes", "stdout_bytes", "loss", "lr"),
    *(
        "mem_allocated_peak",
        "mem_reserved_peak",
        "mem_inactive_split",
        "data_wait_s",
        "grad_norm",
        "tps",
        "mfu",
    ),
    *("consumed_samples", "compute_s", "comm_wait_s", "num_alloc_retries", "num_ooms"),
)
SCRAPE_EVERY_S = 5
MODES = ("stall", "restart", "exporter", "nan", "xid", "ckpt")


def write_step(files: dict[int, Path], step: int) -> None:
    """Every rank finishes a step: one line each."""
    fields = dict.fromkeys(NAMES, step + 0.123456789)
    for rank, path in files.items():
        with path.open("ab") as file:
            said = {"t": time.time(), "step": step, "rank": rank, **fields}
            file.write(json.dumps(said).encode() + b"\n")


def exporter(ranks: int, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "signals" / "attempt_0"
        folder.mkdir(parents=True)
        files = {rank: folder / f"rank_{rank}.jsonl" for rank in range(ranks)}
        write_step(files, 0)
        process = subprocess.Popen(
            (
                sys.executable,
                "-m",
                "harness.cli",
                "monitor",
                "export",
                "--dir",
                str(folder.parent),
                "--port",
                "0",
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
            assert process.stdout is not None
            url = process.stdout.readline().split()[0]
            watched = psutil.Process(process.pid)
            begun, before = time.monotonic(), watched.cpu_times()
            scrapes, size = [], 0
            for second in range(seconds):
                write_step(files, second + 1)
                if second % SCRAPE_EVERY_S == 0:
                    at = time.perf_counter()
                    with urllib.request.urlopen(url) as answer:
                        body = answer.read()
                    scrapes.append(time.perf_counter() - at)
                    size = len(body)
                time.sleep(max(0.0, begun + second + 1 - time.monotonic()))
            wall, after = time.monotonic() - begun, watched.cpu_times()
            cpu = (after.user + after.system - before.user - before.system) / wall
            print(f"| exporter | {ranks} ranks x 1 Hz, {len(NAMES)} fields | {cpu:.1%} of one core |")
            print(
                f"| scrape | {body.count(b'train_')} lines, {size / 1e6:.2f} MB | median"
                f" {statistics.median(scrapes) * 1e3:.0f} ms, longest {max(scrapes) * 1e3:.0f} ms |"
            )
            print(f"| memory | | {watched.memory_info().rss / 2**20:.0f} MiB |")
        finally:
            process.terminate()
            process.wait()


def page(threshold: float | None) -> None:
    head = (
        "mode",
        "page after s",
        *(link.replace("_", " ") for link in LINKS),
        "messages",
        "resolved after s",
    )
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    short = ("--threshold", f"{threshold:g}") if threshold else ()
    for mode in MODES if threshold else ("stall", "exporter"):
        command = (sys.executable, "-m", "harness.cli", "run", "page", "--mode", mode, "--json", *short)
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run((*command, "--out", out), capture_output=True, text=True)
        said = json.loads(done.stdout)["page"]
        if said is None or said["seconds"] is None:
            print(f"| {mode} | none: {(said and said['died']) or done.stderr.splitlines()[-1]} |")
            continue
        links = " | ".join(f"{said['links'].get(name, float('nan')):.2f}" for name in LINKS)
        resolved = said["resolved_after_s"]
        print(
            f"| {mode} | {said['seconds']:.2f} | {links} | {said['pages']} |"
            f" {'' if resolved is None else f'{resolved:.1f}'} |",
            flush=True,
        )


LINKS = ("last_step", "rule", "alertmanager", "group_wait", "webhook")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=("exporter", "page", []), default=[])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--threshold", type=float)
    options = parser.parse_args()
    if not options.what or "exporter" in options.what:
        exporter(options.ranks, options.seconds)
    if not options.what or "page" in options.what:
        page(options.threshold)


if __name__ == "__main__":
    main()
