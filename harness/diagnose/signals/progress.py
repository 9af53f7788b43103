"""How far each rank's steps got, from the per-step records."""

from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.columns import Floats, Ints, StepColumns


@dataclass(frozen=True, eq=False)
class Progress:
    """The steps that one rank completed: `ends` and `steps` in file order, `line` of the last whole record.

    `losses` are as recorded, NaN where none was. Times are unix seconds; lines count from 1.
    """

    rank: int
    file: str
    line: int
    ends: Floats
    steps: Ints
    losses: Floats

    @classmethod
    def of(cls, columns: StepColumns) -> "Progress":
        """From the records of one rank in one attempt."""
        losses = columns.values.get("loss", np.full(len(columns), np.nan))
        line = int(columns.line[-1])
        return cls(columns.rank, columns.file, line, columns.t, columns.step, losses)

    @property
    def loss_by_step(self) -> dict[int, float]:
        """Recorded losses by step."""
        known = ~np.isnan(self.losses)
        return dict(zip(self.steps[known].tolist(), self.losses[known].tolist(), strict=True))

    @property
    def step(self) -> int:
        """The last completed step."""
        return int(self.steps[-1])

    @property
    def t(self) -> float:
        """When the last completed step ended."""
        return float(self.ends[-1])

    @property
    def first_end(self) -> float:
        """When the first completed step ended."""
        return float(self.ends[0])

    def gaps_s(self) -> Floats:
        """Times between the ends of steps that follow one another."""
        return np.diff(self.ends)

    def step_at(self, t: float) -> int:
        """The step that the rank was in at a time."""
        done = int(np.searchsorted(self.ends, t))
        return int(self.steps[done]) if done < len(self.steps) else self.step + 1
