"""How far each rank's steps got, from the per-step records."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """The last whole record of one rank. `line` counts from 1; `t` is unix seconds."""

    rank: int
    file: str
    line: int
    step: int
    t: float


def read_progress(folder: Path, root: Path) -> dict[int, Progress]:
    """The last step that each rank completed; torn lines are passed over."""
    found: dict[int, Progress] = {}
    for path in sorted(folder.glob("rank_*.jsonl")) if folder.is_dir() else ():
        try:
            lines = path.read_bytes().splitlines()
        except OSError:
            continue
        for number in range(len(lines), 0, -1):
            try:
                record = json.loads(lines[number - 1])
                last = Progress(
                    int(record["rank"]),
                    str(path.relative_to(root)),
                    number,
                    int(record["step"]),
                    float(record["t"]),
                )
            except (ValueError, KeyError, TypeError):
                continue
            found[last.rank] = last
            break
    return found
