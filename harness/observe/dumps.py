"""Asking ranks for their Flight Recorder dumps through named pipes, and waiting for the files."""

import errno
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

DUMP_WAIT_S = 2.5
PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE_VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"


def dump_prefix(environ: Mapping[str, str]) -> str:
    """Where torch would put dumps in this environment; the rank is appended.

    Source: torch 2.13, DebugInfoWriter: TORCH_FR_DUMP_TEMP_FILE, its old name, else the cache folder.
    """
    for name in PREFIX_VARIABLES:
        if environ.get(name):
            return environ[name]
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    return f"{cache}/torch/comm_lib_trace_rank_"


def request_dumps(pipes: Mapping[int, Path]) -> dict[int, str]:
    """Write a byte into each rank's pipe. Returns the ranks that cannot be asked, with the reason."""
    failed: dict[int, str] = {}
    for rank, pipe in pipes.items():
        try:
            fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            failed[rank] = "no dump pipe: the rank never made one, or has finished"
            continue
        except OSError as error:
            nobody = error.errno == errno.ENXIO
            failed[rank] = "nobody reads its dump pipe: the rank is gone" if nobody else str(error)
            continue
        try:
            os.write(fd, b"1")
        except OSError as error:
            failed[rank] = f"dump pipe: {error.strerror}"
        finally:
            os.close(fd)
    return failed


def await_dumps(
    files: Mapping[int, Path],
    asked_ns: int,
    alive: Callable[[int], bool],
    timeout_s: float = DUMP_WAIT_S,
) -> dict[int, str]:
    """Wait until each file exists and is newer than `asked_ns` (wall clock). Returns who did not answer.

    A rank that is not `alive` any more is not waited for.
    """
    waiting, failed = dict(files), dict[int, str]()
    deadline = time.monotonic() + timeout_s
    while True:
        for rank in [r for r in waiting if not alive(r)]:
            if not _fresh(waiting.pop(rank), asked_ns):
                failed[rank] = "ended before it answered"
        waiting = {r: f for r, f in waiting.items() if not _fresh(f, asked_ns)}
        if not waiting or time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return {**failed, **dict.fromkeys(waiting, f"asked, no dump within {timeout_s:g} s")}


def _fresh(file: Path, asked_ns: int) -> bool:
    try:
        # File systems stamp with the kernel's coarse clock, up to 10 ms behind.
        return file.stat().st_mtime_ns >= asked_ns - 20_000_000
    except OSError:
        return False
