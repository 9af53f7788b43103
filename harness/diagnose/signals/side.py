"""One side of two runs that are compared: its typical step, part by part, for the job and for each rank."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.columns import Floats
from harness.diagnose.signals.history import OWN, RankHistory
from harness.diagnose.signals.medians import deviation, middle
from harness.diagnose.signals.steps import WARM_UP_STEPS, Steps
from harness.model.errors import PrerequisiteError

STEP, SAVE, REST, WAIT = "step_time_s", "save_s", "rest_s", "comm_wait_s"
"""Parts by name: a step, one save, what no other part explains, waiting for others."""

GREW = 0.02
"""Less than this share of a step is noise (DIAGNOSIS, thresholds: jitter)."""

LEAST_SAVES = 2


@dataclass(frozen=True)
class Side:
    """One run's typical step: seconds by part, for each rank and for the median rank, and their spread.

    `parts`: seconds a step, shape [ranks, stretches]. `save_s` is in seconds a save, and has no stretches.
    """

    name: str
    steps: Steps
    cells: slice
    parts: Mapping[str, Floats]
    ranks: Mapping[int, Mapping[str, float]]
    typical: Mapping[str, float]
    spread: Mapping[str, float]

    @property
    def step_s(self) -> float:
        """What the median rank's step takes."""
        return self.typical[STEP]

    @property
    def records(self) -> int:
        """Records a rank beyond the warm-up, in the whole run."""
        return int(np.median([_beyond_warm_up(h) for h in self.steps.histories]))

    @property
    def saves(self) -> int:
        """Saves a rank made in the whole run."""
        return int(np.median([len(h.saves) for h in self.steps.histories]))

    @property
    def spans(self) -> int:
        """Steps from the first record to the last."""
        return max(1, self.steps.last - self.steps.first + 1)

    def knows(self, part: str) -> bool:
        """Whether the part was measured."""
        return not np.isnan(self.typical.get(part, np.nan))

    def of(self, rank: int, part: str) -> float:
        """One rank's seconds, NaN where they were not measured."""
        return self.ranks.get(rank, {}).get(part, np.nan)


def read_side(name: str, steps: Steps, whole: bool = False) -> Side:
    """A run's typical step: over the whole run but its warm-up, or in its present window.

    Raises:
        PrerequisiteError: it has no step records with times.
    """
    if not steps.histories or not steps.has(STEP):
        raise PrerequisiteError(
            f"{name}: no step records there: give a run with signals, or its frameworks' logs"
        )
    skip = -(-WARM_UP_STEPS // steps.width)
    columns = steps.matrix(STEP).shape[1]
    cells = slice(min(skip, columns - 1), columns)
    if steps.windows and not whole:
        cells = steps.windows[1].cells
    parts = _parts(steps, cells)
    ranks = {
        rank: {part: middle(values[row]) for part, values in parts.items()}
        for row, rank in enumerate(steps.ranks)
    }
    typical = {part: middle(values) for part, values in parts.items()}
    saves = {h.rank: middle(np.array([s.duration_s for s in h.saves])) for h in steps.histories}
    if any(h.saves for h in steps.histories):
        typical[SAVE] = middle(np.array(list(saves.values())))
        ranks = {rank: {**found, SAVE: saves[rank]} for rank, found in ranks.items()}
    return Side(name, steps, cells, parts, ranks, typical, {p: _deviation(v) for p, v in parts.items()})


def _parts(steps: Steps, cells: slice) -> dict[str, Floats]:
    """Seconds a step by part; the rest is what no other part explains.

    A rest below nothing shows that times overlap, as a save beside the step: then it is not known.
    """
    known = [f for f in (STEP, "compute_s", "data_wait_s", WAIT) if steps.has(f)]
    parts = {field: steps.matrix(field)[:, cells] for field in known}
    parts = {field: np.where(values < 0, np.nan, values) for field, values in parts.items()}
    if steps.has(OWN):
        own = steps.matrix(OWN)[:, cells]
        rest = own - sum(parts[f] for f in ("compute_s", "data_wait_s") if f in parts)
        overlaps = rest < -GREW * parts[STEP]
        parts[REST] = np.where(overlaps, np.nan, np.maximum(rest, 0.0))
        parts[OWN] = np.where(overlaps, np.nan, own)
    return parts


def _deviation(values: Floats) -> float:
    """Robust standard deviation over stretches of the median rank, seconds."""
    row = np.array([middle(column) for column in values.T])
    known = row[~np.isnan(row)]
    return float(deviation(known)) if len(known) > 2 else 0.0


def _beyond_warm_up(history: RankHistory) -> int:
    span = int(history.steps[-1] - history.steps[0]) + 1
    return history.records * max(0, span - WARM_UP_STEPS) // span
