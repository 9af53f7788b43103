"""Step records made to measure, written as the ranks write them."""

import json
from pathlib import Path


def record(step: int, rank: int = 0, t: float = 1000.0, **fields: object) -> bytes:
    """One line of a rank's file, with its end."""
    said = {"t": t, "step": step, "rank": rank, "step_time_s": 0.5, "loss": 1.0, **fields}
    return json.dumps(said).encode() + b"\n"


def rank_file(folder: Path, rank: int, attempt: int = 0) -> Path:
    """Where a rank of a start writes; its folder is made."""
    path = folder / f"attempt_{attempt}" / f"rank_{rank}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def append(path: Path, data: bytes) -> None:
    """As a rank does: one write at the end."""
    with path.open("ab") as file:
        file.write(data)
