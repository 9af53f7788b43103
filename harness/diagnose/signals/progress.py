"""How far each rank's steps got, from the per-step records."""

import bisect
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """The steps that one rank completed: `ends` and `steps` in file order, `line` of the last whole record.

    `losses` are as recorded, None where none was.

    Times are unix seconds; lines count from 1.
    """

    rank: int
    file: str
    line: int
    ends: tuple[float, ...]
    steps: tuple[int, ...]
    losses: tuple[float | None, ...] = ()

    @property
    def loss_by_step(self) -> dict[int, float]:
        """Recorded losses by step."""
        pairs = zip(self.steps, self.losses, strict=False)
        return {step: loss for step, loss in pairs if loss is not None}

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
        rows: list[tuple[float, int, int, int, float | None]] = []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                loss = record.get("loss")
                rows.append(
                    (
                        *(float(record["t"]), int(record["step"]), int(record["rank"])),
                        *(number, float(loss) if loss is not None else None),
                    )
                )
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue
        if rows:
            ends, steps, ranks, numbers, losses = zip(*rows, strict=True)
            name = str(path.relative_to(root))
            found[ranks[-1]] = Progress(ranks[-1], name, numbers[-1], ends, steps, losses)
    return found
