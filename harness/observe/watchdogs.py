"""Waiting for dumps that ranks' own watchdogs write when a collective's time is up."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.observe.processes import is_alive

POLL_S = 0.1


def await_watchdogs(
    files: Mapping[int, Path],
    pids: Mapping[int, int],
    limit_s: float,
    heed: Callable[[], None] = lambda: None,
) -> dict[str, list[int]]:
    """Wait until every rank has left its file. Returns the ranks that did not, by reason.

    A rank that has ended is not waited for. `heed` is called between looks, and may raise.
    """
    deadline = time.monotonic() + limit_s
    waiting, why = set(files), dict[str, list[int]]()
    while True:
        heed()
        gone = [rank for rank in waiting if rank not in pids or not is_alive(pids[rank])]
        waiting = {rank for rank in waiting if not _left(files[rank])}
        for rank in sorted(waiting & set(gone)):
            why.setdefault("ended before its watchdog wrote it", []).append(rank)
        waiting -= set(gone)
        if not waiting or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    if waiting:
        why[f"its watchdog wrote nothing within {limit_s:.0f} s"] = sorted(waiting)
    return why


def _left(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False
