"""The newest finished step of each rank, read from the ends of their files."""

import json
import os
from pathlib import Path

TAIL_BYTES = 1 << 14


def last_steps(signals: Path) -> dict[int, tuple[int, float]]:
    """Rank -> its newest step and that step's end, unix seconds, in the newest start that recorded any."""
    found: dict[int, tuple[int, float]] = {}
    for folder in sorted(signals.glob("attempt_*"), key=lambda path: int(path.name.rpartition("_")[2])):
        for path in folder.glob("rank_*.jsonl"):
            if (record := _last_record(path)) is not None:
                found[record[0]] = record[1:]
    return found


def _last_record(path: Path) -> tuple[int, int, float] | None:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().rpartition(b"\n")[0].splitlines()
        said = json.loads(lines[-1])
        return int(said["rank"]), int(said["step"]), float(said["t"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
