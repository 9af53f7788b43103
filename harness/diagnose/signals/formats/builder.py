"""Rows of one rank, as a log prints them, into columns: lines said twice, restarts in the middle."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.diagnose.signals.columns import Floats, StepColumns
from harness.diagnose.texts.files import TextFile

SAME_STEP_S = 10.0
"""Lines of one step within this time are one record; a restart takes longer to come back to a step."""


@dataclass(frozen=True)
class Piece:
    """Records of one rank from one file, between two restarts.

    `attempt` is what the file's place says, None if nothing. `process`: the file is one process's own, so
    that another such file of the same rank is another attempt.
    """

    columns: StepColumns
    attempt: int | None
    process: bool = False


@dataclass
class _Row:
    step: int
    t: float
    line: int
    values: dict[str, float]


@dataclass
class StepBuilder:
    """Collects the rows of one rank in one file; a step number that goes back begins another piece."""

    source: TextFile
    rank: int
    format: str
    _segments: list[list[_Row]] = field(default_factory=list)
    _by_step: dict[int, _Row] = field(default_factory=dict)

    def add(self, step: int, t: float, line: int, values: Mapping[str, float]) -> None:
        """One record, or more about a step that has one: what was recorded first stays.

        A step with a record was done again if this one is much later or, without times, says another number.
        """
        row = self._by_step.get(step)
        if row is None:
            if self._goes_back(step, t):
                self._begin()
            self._append(step, t, line, values)
        elif self._again(row, t, values):
            self._begin()
            self._append(step, t, line, values)
        else:
            row.t = t if math.isnan(row.t) else row.t
            row.values.update({name: value for name, value in values.items() if name not in row.values})

    def amend(self, step: int, line: int, values: Mapping[str, float]) -> None:
        """What is said later about a step; a step without a record gets one, without a time."""
        row = self._by_step.get(step)
        if row is not None:
            row.values.update(values)
        elif not self._goes_back(step, math.nan):
            self._append(step, math.nan, line, values)

    @property
    def last_step(self) -> int | None:
        """The step of the last record, None before the first."""
        return self._segments[-1][-1].step if self._segments else None

    def pieces(self) -> list[Piece]:
        """All that was collected, in file order."""
        return [Piece(self._columns(rows), self.source.attempt) for rows in self._segments]

    def _goes_back(self, step: int, t: float) -> bool:
        """A lower step, later in time; without times, a lower step."""
        if not self._segments:
            return False
        last = self._segments[-1][-1]
        return step < last.step and not t <= last.t

    def _again(self, row: _Row, t: float, values: Mapping[str, float]) -> bool:
        """Whether a step that has a record was done once more, rather than spoken of once more."""
        if not (math.isnan(row.t) or math.isnan(t)):
            return abs(t - row.t) > SAME_STEP_S
        return any(row.values.get(name, value) != value for name, value in values.items())

    def _begin(self) -> None:
        self._segments.append([])
        self._by_step = {}

    def _append(self, step: int, t: float, line: int, values: Mapping[str, float]) -> None:
        if not self._segments:
            self._begin()
        row = _Row(step, t, line, dict(values))
        self._segments[-1].append(row)
        self._by_step[step] = row

    def _columns(self, rows: list[_Row]) -> StepColumns:
        names = sorted({name for row in rows for name in row.values})
        columns: dict[str, Floats] = {
            name: np.array([row.values.get(name, math.nan) for row in rows], np.float64) for name in names
        }
        return StepColumns(
            self.rank,
            self.source.attempt or 0,
            self.source.name,
            self.format,
            np.array([row.t for row in rows], np.float64),
            np.array([row.step for row in rows], np.int64),
            np.array([row.line for row in rows], np.int64),
            columns,
        )
