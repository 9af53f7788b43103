"""All ranks' histories of one attempt side by side, and its two windows: its own beginning, and now."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.columns import Floats
from harness.diagnose.signals.history import RankHistory
from harness.diagnose.signals.medians import medians
from harness.diagnose.signals.thresholds import DEFAULTS, Thresholds

WARM_UP_STEPS = 3
LONG_WARM_UP_STEPS = 10
"""Steps left out at the start of a run: of a short one, and of one of at least 200 steps."""


LEAST_STRETCHES = 6


@dataclass(frozen=True)
class Window:
    """Steps `first` to `last`, both included; `cells` of them."""

    first: int
    last: int
    cells: slice

    def __str__(self) -> str:
        return f"steps {self.first}-{self.last}"


@dataclass(frozen=True)
class Both:
    """One rank's or the job's figure in the early window and now. NaN where there is none."""

    early: float
    now: float

    @property
    def growth(self) -> float:
        """Now as a multiple of early; infinity from nothing, NaN where either is not known."""
        if np.isnan(self.early) or np.isnan(self.now):
            return float("nan")
        if self.early <= 0:
            return float("inf") if self.now > 0 else 1.0
        return self.now / self.early


class Steps:
    """Histories of one attempt, a row a rank, a column a stretch of `width` steps from step `first` on."""

    def __init__(self, histories: Sequence[RankHistory], limits: Thresholds = DEFAULTS) -> None:
        self.histories = tuple(sorted(histories, key=lambda h: h.rank))
        self.limits = limits
        self.ranks = tuple(h.rank for h in self.histories)
        self.width = max((h.width for h in self.histories), default=1)
        begins = [h.first // self.width for h in self.histories]
        self._begin = min(begins, default=0)
        self.first = self._begin * self.width
        self.last = int(np.median([h.steps[-1] for h in self.histories])) if self.histories else 0
        self._matrices: dict[str, Floats] = {}
        self._both: dict[str, Mapping[int, Both]] = {}
        self.windows = self._windows()

    @property
    def attempt(self) -> int:
        """Which start of the job this is."""
        return max((h.attempt for h in self.histories), default=0)

    def history(self, rank: int) -> RankHistory:
        """One rank's own history."""
        return self.histories[self.ranks.index(rank)]

    def has(self, *fields: str) -> bool:
        """Whether most ranks recorded all of these fields."""
        having = sum(all(f in h.cells for f in fields) for h in self.histories)
        return 2 * having > len(self.histories)

    def matrix(self, field: str) -> Floats:
        """Medians of a field, shape [ranks, stretches]; NaN where nothing was recorded."""
        if field not in self._matrices:
            rows = [self._row(h, h.cells.get(field)) for h in self.histories]
            count = max((len(row) for row in rows), default=0)
            matrix = np.full((len(rows), count), np.nan)
            for place, row in zip(matrix, rows, strict=True):
                place[: len(row)] = row
            self._matrices[field] = matrix
        return self._matrices[field]

    def typical(self, field: str) -> Floats:
        """The median rank's value of a field in each stretch; NaN where no rank has one."""
        return medians(self.matrix(field), axis=0)

    def both(self, field: str) -> Mapping[int, Both]:
        """Each rank's median in the early window and now. Needs windows."""
        assert self.windows is not None
        if field not in self._both:
            early, now = (medians(self.matrix(field)[:, w.cells], axis=1) for w in self.windows)
            pairs = zip(early.tolist(), now.tolist(), strict=True)
            self._both[field] = {r: Both(a, b) for r, (a, b) in zip(self.ranks, pairs, strict=True)}
        return self._both[field]

    def job(self, field: str) -> Both:
        """The median over ranks of their medians, early and now."""
        found = list(self.both(field).values())
        sides = np.array([(b.early, b.now) for b in found])
        early, now = medians(sides, axis=0).tolist()
        return Both(early, now)

    def line_of(self, rank: int, window: Window) -> int | None:
        """The first record of a rank inside a window, for citing."""
        history = self.history(rank)
        step = np.arange(len(history.lines)) * history.width + history.first
        rows = np.flatnonzero((step >= window.first) & (history.lines > 0))
        return int(history.lines[rows[0]]) if len(rows) else None

    def since(self, values: Floats, limit: float) -> int:
        """The step from which on a series of stretches is above a limit, some noise aside."""
        return self.first + change_point(values, limit) * self.width

    def _row(self, history: RankHistory, values: Floats | None) -> Floats:
        """A rank's stretches in the common width, from the common beginning on."""
        if values is None:
            return np.empty(0)
        times = self.width // history.width
        lead = (history.first - self.first) // history.width
        padded = np.concatenate([np.full(lead, np.nan), values])
        padded = np.concatenate([padded, np.full(-len(padded) % times, np.nan)])
        return padded if times == 1 else medians(padded.reshape(-1, times), axis=1)

    def _windows(self) -> tuple[Window, Window] | None:
        """The early window and the present one; None where the run is too short to compare."""
        if not self.histories:
            return None
        span = self.last - self.first + 1
        warm_up = LONG_WARM_UP_STEPS if span >= 200 else WARM_UP_STEPS
        # Of a long run's wide stretches several must fit into a window, to tell always from once.
        wanted = max(self.limits.window_steps, LEAST_STRETCHES * self.width)
        density = float(np.median([h.records for h in self.histories])) / max(span, 1)
        # Records of every tenth step need a window ten times as long.
        wanted = max(wanted, math.ceil(self.limits.least_records / max(density, 1e-9)))
        length = min(wanted, (span - warm_up) // 2)
        cells = length // self.width
        skip = -(-warm_up // self.width)
        end = (self.last + 1 - self.first) // self.width
        if cells < 1 or round(density * length) < self.limits.least_records or skip + cells > end - cells:
            return None
        return self._window(skip, skip + cells), self._window(end - cells, end)

    def _window(self, begin: int, end: int) -> Window:
        last = self.first + end * self.width - 1
        return Window(self.first + begin * self.width, last, slice(begin, end))


def change_point(values: Floats, limit: float) -> int:
    """The entry from which on values are above a limit, and are not before, with fewest exceptions.

    Entries that are not known (NaN) do not count. 0 where none is known.
    """
    places = np.flatnonzero(~np.isnan(values))
    if not len(places):
        return 0
    above = values[places] > limit
    wrong_before = np.concatenate([[0], np.cumsum(above)])
    wrong_after = np.concatenate([[0], np.cumsum(~above)])
    change = int(np.argmin(wrong_before + wrong_after[-1] - wrong_after))
    return int(places[min(change, len(places) - 1)])


def rising(values: Floats, windows: int = 10) -> float:
    """In what share of `windows` equal parts, but the first, the median is above that of the part before.

    Of few values fewer parts, of two values each; 0 where there are not enough for LEAST_STRETCHES of them.
    """
    known = values[~np.isnan(values)]
    windows = min(windows, len(known) // 2)
    if windows < LEAST_STRETCHES:
        return 0.0
    parts = np.array([np.median(part) for part in np.array_split(known, windows)])
    return float((np.diff(parts) > 0).mean())
