"""How far each rank's steps got, from the per-step records."""

import bisect
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """The steps that one rank completed: `ends` and `steps` in file order, `line` of the last whole record.

    Times are unix seconds; lines count from 1.
    """

    rank: int
    file: str
    line: int
    ends: tuple[float, ...]
    steps: tuple[int, ...]

    @property
    def step(self) -> int:
        """The last completed step."""
        return self.steps[-1]

    @property
    def t(self) -> float:
        """When the last completed step ended."""
        return self.ends[-1]

    def step_at(self, t: float) -> int:
        """The step that the rank was in at a time."""
        done = bisect.bisect_left(self.ends, t)
        return self.steps[done] if done < len(self.steps) else self.steps[-1] + 1


def read_progress(folder: Path, root: Path) -> dict[int, Progress]:
    """Steps of every rank that recorded any; torn lines are passed over."""
    found: dict[int, Progress] = {}
    for path in sorted(folder.glob("rank_*.jsonl")) if folder.is_dir() else ():
        try:
            lines = path.read_bytes().splitlines()
        except OSError:
            continue
        rows: list[tuple[float, int, int, int]] = []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                rows.append((float(record["t"]), int(record["step"]), int(record["rank"]), number))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue
        if rows:
            ends, steps, ranks, numbers = zip(*rows, strict=True)
            name = str(path.relative_to(root))
            found[ranks[-1]] = Progress(ranks[-1], name, numbers[-1], ends, steps)
    return found
