"""The newest values of every rank, and what follows from several records: medians, positions, saves."""

from __future__ import annotations

import math
import statistics
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.diagnose.signals.thresholds import ALERTS, AlertThresholds
from harness.monitor.job_state import Progress
from harness.monitor.names import (
    LAST_STEP,
    LOSS_FINITE,
    LOSS_NOT_FINITE,
    POSITION_ERRORS,
    SLOW_SAVES,
    STEP,
    UP,
    MetricName,
    field_metric,
)
from harness.monitor.records import SpanRecord, StepRecord

RECENT_STEPS = 20
POSITIONS = 512
"""So many steps back a position can be compared: about as far as a restart goes back."""

SAVES = 20
LEAST_SAVES = 3
SAVE_FLOOR_S = 1.0
"""A save that takes less than so much longer than usual wakes nobody, however short saves are."""

CLOCK_TOLERANCE_S = 30.0
"""A record whose time differs by more from the time of its arrival has a clock that jumped."""

MOST_RANKS = 1 << 14
MOST_FIELDS = 128
MOST_SPANS = 64


@dataclass
class _Rank:
    """What one rank's records have led to."""

    attempt: int
    step: int = -1
    at: float = 0.0
    stepped: bool = False
    step_times: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    saves: deque[float] = field(default_factory=lambda: deque(maxlen=SAVES))
    positions: array[float] = field(default_factory=lambda: array("d", [math.nan]) * POSITIONS)
    position_steps: array[int] = field(default_factory=lambda: array("q", [-1]) * POSITIONS)
    position: float = -math.inf
    compared: int = 0
    """The newest attempt whose positions were found wrong: it is counted once."""


@dataclass
class Board:
    """Metric -> rank -> value. Bounded: more ranks, fields and spans are refused and counted."""

    thresholds: AlertThresholds = ALERTS
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    metrics: dict[str, MetricName] = field(default_factory=dict)
    spans: dict[str, dict[int, float]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    clock_jumps: int = 0
    _p50: float | None = None
    _p50_is_old: bool = False
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _tables: dict[str, dict[int, float] | None] = field(default_factory=dict)
    """Field -> its table in `values`, None for a refused one: what is looked up for every value."""

    def __post_init__(self) -> None:
        for metric in (UP, STEP, LAST_STEP, LOSS_FINITE, LOSS_NOT_FINITE, POSITION_ERRORS, SLOW_SAVES):
            self._table_of(metric)

    def add(self, record: StepRecord, arrived: float) -> None:
        """Take one step. `arrived`: unix seconds on this machine's clock (of old records: the file's)."""
        rank = self._rank(record.rank, record.attempt)
        if rank is None or record.attempt < rank.attempt:
            return
        at = record.t
        if abs(at - arrived) > CLOCK_TOLERANCE_S:
            self.clock_jumps += 1
            at = arrived
        number, values = record.rank, record.values
        rank.step, rank.at, rank.stepped = record.step, min(at, arrived), True
        for name, value in values.items():
            try:
                table = self._tables[name]
            except KeyError:
                table = self._table_of_field(name)
            if table is not None:
                table[number] = value
        self.values[LAST_STEP.name][number] = rank.at
        if "loss" in values:
            finite = math.isfinite(values["loss"])
            self.values[LOSS_FINITE.name][number] = float(finite)
            if not finite:
                self.values[LOSS_NOT_FINITE.name][number] += 1
        if (took := values.get("step_time_s")) is not None and math.isfinite(took):
            rank.step_times.append(took)
            self._p50_is_old = True
        if (position := values.get("consumed_samples")) is not None:
            self._position(number, rank, record.step, position)
        if (save := values.get("ckpt_duration_s")) is not None:
            self._saved(number, rank, save)

    def add_span(self, record: SpanRecord, attempt: int, arrived: float) -> None:
        """Take one span of torchtitan's log; the end of ``step`` is a finished step."""
        rank = self._rank(record.rank, attempt)
        if rank is None:
            return
        if record.name == "step" and record.step is not None:
            values = {"step": float(record.step), "step_time_s": record.seconds}
            self.add(StepRecord(record.rank, attempt, record.t, record.step, values), arrived)
        table = self.spans.get(record.name)
        if table is None:
            if len(self.spans) >= MOST_SPANS:
                self._refuse("span names")
                return
            table = self.spans[record.name] = {}
        if not math.isnan(record.seconds):
            table[record.rank] = record.seconds

    def start(self, number: int, attempt: int) -> None:
        """A rank's file is there, with or without a record."""
        self._rank(number, attempt)

    def readable(self, numbers: Mapping[int, bool]) -> None:
        """Which ranks' files could be read."""
        table = self.values[UP.name]
        for number in self._ranks:
            table[number] = float(numbers.get(number, False))

    def progress(self, xid_at: float | None) -> Progress | None:
        """How far the job is; None before any rank has finished a step."""
        stepped = [rank for rank in self._ranks.values() if rank.step >= 0]
        if not stepped:
            return None
        newest = max(rank.attempt for rank in self._ranks.values())
        # A rank that is not in the newest start has nothing to be late with.
        current = [rank for rank in stepped if rank.attempt == newest]
        slowest = min(current or stepped, key=lambda rank: rank.at)
        finite = self.values[LOSS_FINITE.name].values()
        return Progress(
            attempt=newest,
            stepped=bool(current) and all(rank.stepped for rank in current),
            step=slowest.step,
            at=slowest.at,
            p50_s=self.step_time_p50(),
            loss_finite=min(finite, default=1.0) == 1.0,
            xid_at=xid_at,
            ranks=len(current or stepped),
        )

    def step_time_p50(self) -> float | None:
        """Median seconds over the last steps of all ranks."""
        if self._p50_is_old:
            times = sorted(took for rank in self._ranks.values() for took in rank.step_times)
            self._p50 = statistics.median(times) if times else None
            self._p50_is_old = False
        return self._p50

    def ranks(self) -> Iterator[int]:
        """Ranks that have a file."""
        return iter(self._ranks)

    def _rank(self, number: int, attempt: int) -> _Rank | None:
        rank = self._ranks.get(number)
        if rank is None:
            if len(self._ranks) >= MOST_RANKS:
                self._refuse("ranks")
                return None
            rank = self._ranks[number] = _Rank(attempt)
            # Counters begin at 0: `increase` does not see the first value of a series.
            for name in (LOSS_NOT_FINITE.name, POSITION_ERRORS.name, SLOW_SAVES.name):
                self.values[name][number] = 0.0
            for name in ("ckpt_failed_total", "restart_total"):
                table = self._table_of_field(name)
                assert table is not None
                table[number] = float(attempt) if name == "restart_total" else 0.0
        elif attempt > rank.attempt:
            self._restarted(number, rank, attempt)
        return rank

    def _restarted(self, number: int, rank: _Rank, attempt: int) -> None:
        """What the dead process measured is no news of the living one; what it had finished still is."""
        keep = {
            LAST_STEP.name,
            LOSS_NOT_FINITE.name,
            POSITION_ERRORS.name,
            SLOW_SAVES.name,
            STEP.name,
            UP.name,
        }
        for name, table in self.values.items():
            if name not in keep:
                table.pop(number, None)
        for spans in self.spans.values():
            spans.pop(number, None)
        rank.attempt, rank.stepped, rank.position = attempt, False, -math.inf
        restarts = self._table_of_field("restart_total")
        failed = self._table_of_field("ckpt_failed_total")
        assert restarts is not None and failed is not None
        restarts[number], failed[number] = float(attempt), 0.0

    def _position(self, number: int, rank: _Rank, step: int, position: float) -> None:
        slot = step % POSITIONS
        moved_back = position < rank.position
        if rank.attempt > rank.compared and rank.position_steps[slot] == step:
            moved_back |= rank.positions[slot] != position
            rank.compared = rank.attempt if moved_back else rank.compared
        if moved_back:
            self.values[POSITION_ERRORS.name][number] += 1
        rank.position, rank.positions[slot], rank.position_steps[slot] = position, position, step

    def _saved(self, number: int, rank: _Rank, seconds: float) -> None:
        slow = self.values[SLOW_SAVES.name]
        if len(rank.saves) >= LEAST_SAVES:
            usual = statistics.median(rank.saves)
            late = seconds > max(self.thresholds.slow_save * usual, usual + SAVE_FLOOR_S)
            slow[number] = slow[number] + 1 if late else 0.0
        rank.saves.append(seconds)

    def _table_of(self, metric: MetricName) -> dict[int, float]:
        self.metrics[metric.name] = metric
        return self.values.setdefault(metric.name, {})

    def _table_of_field(self, name: str) -> dict[int, float] | None:
        if name not in self._tables:
            if len(self._tables) >= MOST_FIELDS:
                self._refuse("fields")
                return None
            metric = STEP if name == "step" else field_metric(name)
            ours = metric.name in self.metrics and name not in ("step",)
            self._tables[name] = None if ours else self._table_of(metric)
        return self._tables[name]

    def _refuse(self, what: str) -> None:
        self.refused[what] = self.refused.get(what, 0) + 1
