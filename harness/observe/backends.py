"""Which back end a rank uses and since when, from the names that torch gives its threads."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

_THREADS = {"pt_nccl_": "nccl", "pt_gloo_runloop": "gloo"}
"""Set in ProcessGroupNCCL.cpp and ProcessGroupGloo.cpp; gloo's appears once all pairs are connected."""


@dataclass(frozen=True)
class Backends:
    """Back ends whose threads a process runs, and when the first group stood, unix seconds."""

    names: frozenset[str] = frozenset()
    joined: float | None = None


def backends_of(pid: int) -> Backends:
    """Look at the threads of a process; empty where it is gone or its torch gives no names."""
    names: set[str] = set()
    starts: list[float] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return Backends()
    for task in tasks:
        try:
            comm = (task / "comm").read_text().strip()
            backend = next((b for prefix, b in _THREADS.items() if comm.startswith(prefix)), None)
            if backend is not None:
                names.add(backend)
                starts.append(_started((task / "stat").read_text()))
        except (OSError, ValueError, IndexError):
            continue
    return Backends(frozenset(names), min(starts, default=None))


def has_gpu_open(pid: int) -> bool:
    """Whether a process holds an NVIDIA device open: it may use NCCL."""
    try:
        return any(str(fd.readlink()).startswith("/dev/nvidia") for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _started(stat: str) -> float:
    """When a task began, from field 22 of its stat; the name in parentheses may hold anything."""
    ticks = int(stat.rpartition(")")[2].split()[19])
    return psutil.boot_time() + ticks / os.sysconf("SC_CLK_TCK")
