"""Stacks of one rank as a file of the bundle."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from harness.bundle.codec import to_json, write_atomically
from harness.observe.sources import with_sources
from harness.observe.stacks import ProcessSample


def write_stack(path: Path, processes: Sequence[ProcessSample], switches: Mapping[int, int]) -> None:
    """Write one rank's processes as they were sampled. `switches`: pid -> `voluntary_switches`.

    Raises:
        OSError: the file cannot be written.
    """
    document = [
        {
            "pid": p.pid,
            "role": p.role,
            "state": p.state,
            "error": p.error,
            "switches": switches.get(p.pid),
            "threads": with_sources(p.pid, json.loads(p.threads)) if p.threads else None,
        }
        for p in processes
    ]
    write_atomically(path, json.dumps(to_json(document)).encode())


def voluntary_switches(pids: Sequence[int]) -> dict[int, int]:
    """How often the main thread of each process has gone to sleep so far; without those that are gone.

    Read it after the process's state: one that sleeps, and has not gone to sleep since the last sampling,
    sleeps since before that.
    """
    found: dict[int, int] = {}
    for pid in pids:
        with suppress(psutil.Error):
            found[pid] = psutil.Process(pid).num_ctx_switches().voluntary
    return found
