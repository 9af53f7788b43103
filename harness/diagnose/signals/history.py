"""One rank's step records boiled down: medians over stretches of steps, and what happened once.

A run of 10,000 steps on 1024 ranks is ten million records; what the rules ask of it fits into a few numbers
a stretch. Only what must be compared step by step between ranks (digests) is kept whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.diagnose.signals.columns import Floats, Ints, StepColumns

CHECKED = ("loss", "grad_norm", "param_norm")
"""Values that must be finite."""

OWN = "own_s"
"""What a rank's step takes apart from waiting for others and from saving: derived."""

LONGEST_OWN = "longest_own_s"
"""The longest own time of any step in a stretch: derived."""

ENDS = "ends"
"""When steps ended, unix seconds by the rank's own clock: derived."""

OUTPUT = "output_bytes"
"""Bytes written to standard output and error in one step: derived."""

STRETCHES, MAX_WIDTH = 64, 32

EPISODE_STEPS = 50
"""Steps without a bad value after which the next one is another story."""

SCALER_RECORDS = 40
"""Steps in a row that a loss scaler may skip: from the largest usual scale, 2**32, down to 1."""

CLOCK_JUMP_S = 60.0
"""A wall clock that moves so much more, or less, than the measured step time jumped."""


@dataclass(frozen=True)
class Moment:
    """One record: where it stands, and the value that matters there."""

    step: int
    line: int
    value: float


@dataclass(frozen=True)
class Episode(Moment):
    """Records in which a value is not finite, of which the first is told; less than 50 steps lie between two.

    `last`: the last such step; `healed`: finite values of the same kind follow it.
    """

    last: int
    healed: bool


@dataclass(frozen=True)
class Rhythm:
    """In which steps a value is recorded: the first, the last, and the least number of steps between two."""

    first: int
    last: int
    every: int

    def has(self, step: int) -> bool:
        """Whether the value is recorded in this step, as far as the rhythm tells."""
        return self.first <= step <= self.last and (step - self.first) % self.every == 0


@dataclass(frozen=True)
class Save:
    """One checkpoint as a rank saw it: seconds in all, for its own part, and of the step that it was made in.

    NaN where not measured.
    """

    step: int
    line: int
    duration_s: float
    write_s: float
    step_s: float = float("nan")


@dataclass(frozen=True, eq=False)
class Digests:
    """What a rank held at each step: a hash of the recorded text. Arrays of equal length."""

    step: Ints
    line: Ints
    hash: np.ndarray[tuple[int], np.dtype[np.uint64]]


@dataclass(frozen=True, eq=False)
class Positions:
    """Consumed samples, at the records between which they grow evenly, and at both ends."""

    step: Ints
    line: Ints
    samples: Floats

    def at(self, step: int) -> float | None:
        """The position after a step, None outside of what was recorded."""
        if not len(self.step) or not self.step[0] <= step <= self.step[-1]:
            return None
        return float(np.interp(step, self.step, self.samples))


@dataclass(frozen=True, eq=False)
class RankHistory:
    """`cells`: field -> one median a stretch of `width` steps, the first of which begins at step `first`.

    NaN where a stretch has no such value. `lines`: the first record of each stretch, 0 where it has none.
    """

    rank: int
    attempt: int
    file: str
    format: str
    first: int
    width: int
    steps: Ints
    records: int
    ended: float
    cells: Mapping[str, Floats]
    lines: Ints
    not_finite: Mapping[str, tuple[Episode, ...]] = field(default_factory=dict)
    rhythms: Mapping[str, Rhythm] = field(default_factory=dict)
    saves: tuple[Save, ...] = ()
    failed_saves: tuple[Moment, ...] = ()
    digests: Digests | None = None
    positions: Positions | None = None
    clock_jumps: tuple[Moment, ...] = ()


def boil_down(columns: StepColumns) -> RankHistory:
    """Reduce one rank's records to stretches of steps: at least 64 of them, each of at most 32 steps.

    Steps that are recorded now and then make wider ones: there are no more stretches than records. The
    width is a power of two and stretches begin at its multiples, so that ranks whose runs were not equally
    long can be laid side by side.
    """
    width = stretch_width(int(columns.step[-1] - columns.step[0]) + 1, len(columns))
    first = int(columns.step[0]) // width * width
    values = dict(columns.values)
    if "step_time_s" not in values and len(columns) > 1:
        gaps = np.diff(columns.t, prepend=np.nan) / np.maximum(
            np.diff(columns.step, prepend=columns.step[0] - 1), 1
        )
        values["step_time_s"] = np.where(gaps > 0, gaps, np.nan)
    values |= {**_derived(values, columns.step), ENDS: columns.t}
    cell = (columns.step - first) // width
    places, lines, medians = _medians(values, columns.line, cell)
    count = int(cell.max()) + 1
    return RankHistory(
        rank=columns.rank,
        attempt=columns.attempt,
        file=columns.file,
        format=columns.format,
        first=first,
        width=width,
        steps=columns.step[[0, -1]],
        records=len(columns),
        ended=float(columns.t[-1]),
        cells={name: _spread(own, places, count) for name, own in medians.items() if not np.isnan(own).all()},
        lines=_spread(lines.astype(np.float64), places, count, 0).astype(np.int64),
        not_finite={name: found for name in CHECKED if (found := _not_finite(columns, name))},
        rhythms={name: rhythm for name in CHECKED if (rhythm := _rhythm(columns, name))},
        saves=_saves(columns),
        failed_saves=_failed(columns),
        digests=_digests(columns),
        positions=_positions(columns),
        clock_jumps=_jumps(columns),
    )


def _medians(values: Mapping[str, Floats], line: Ints, cell: Ints) -> tuple[Ints, Ints, Mapping[str, Floats]]:
    """The stretches that have records, the first line of each, and medians of what was recorded in them."""
    shown = {name: own for name, own in values.items() if not name.startswith("ckpt_")}
    if (np.diff(cell) > 0).all():
        # One record a stretch is its own median.
        return cell, line, {**shown, **({LONGEST_OWN: shown[OWN]} if OWN in shown else {})}
    import polars as pl

    frame = (
        pl.DataFrame({"cell": cell, "line": line, **shown})
        .fill_nan(None)
        .group_by("cell")
        .agg(
            pl.col("line").min(),
            pl.exclude("cell", "line").median().fill_null(np.nan),
            *((pl.col(OWN).max().fill_null(np.nan).alias(LONGEST_OWN),) if OWN in shown else ()),
        )
        .sort("cell")
    )
    places, lines, *medians = frame.get_columns()
    return places.to_numpy(), lines.to_numpy(), {own.name: own.to_numpy() for own in medians}


def stretch_width(span: int, records: int) -> int:
    """Steps a stretch for a run of `span` steps: a power of two, for about as many stretches as records."""
    dense = min(MAX_WIDTH, 1 << max(0, (span // STRETCHES).bit_length() - 1))
    wide = -(-span // max(STRETCHES, records))
    return max(dense, 1 << (wide - 1).bit_length())


def _derived(values: Mapping[str, Floats], steps: Ints) -> dict[str, Floats]:
    """Own time, and output a step, where what they derive from was recorded."""
    derived: dict[str, Floats] = {}
    step, wait = values.get("step_time_s"), values.get("comm_wait_s")
    if step is not None and wait is not None:
        saving = values.get("ckpt_duration_s")
        own = step - wait - (np.nan_to_num(saving) if saving is not None else 0.0)
        # A wait that overlaps with computing, or a save beside training, is no part of the step.
        derived[OWN] = np.where(own >= 0, own, np.nan)
    written = values.get("stdout_bytes")
    if written is not None:
        derived[OUTPUT] = _a_step(written, steps)
    return derived


def _a_step(totals: Floats, steps: Ints) -> Floats:
    """Growth a step of a total that may be recorded now and then, at the records that have it.

    A total that fell, as the size of a log that was rotated, starts anew: nothing is known about that step.
    """
    rows = np.flatnonzero(~np.isnan(totals))
    growth = np.diff(totals[rows]) / np.maximum(np.diff(steps[rows]), 1)
    out = np.full(len(totals), np.nan)
    out[rows[1:]] = np.where(growth >= 0, growth, np.nan)
    return out


def _spread(values: Floats, places: Ints, count: int, empty: float = np.nan) -> Floats:
    out = np.full(count, empty)
    inside = places >= 0
    out[places[inside]] = values[inside]
    return out


def _not_finite(columns: StepColumns, name: str) -> tuple[Episode, ...]:
    """Where a value is infinite, but for what the loss scaler skipped: that is its work, unless it lasts."""
    values = columns.values.get(name)
    if values is None:
        return ()
    bad = np.isinf(values)
    if name != "param_norm":
        bad &= ~_scaled_away(columns, bad)
    rows = np.flatnonzero(bad)
    if not len(rows):
        return ()
    finite = np.flatnonzero(np.isfinite(values))
    after = int(finite[-1]) if len(finite) else -1
    parts = np.split(rows, np.flatnonzero(np.diff(columns.step[rows]) > EPISODE_STEPS) + 1)
    return tuple(
        Episode(
            int(columns.step[part[0]]),
            int(columns.line[part[0]]),
            float(values[part[0]]),
            last=int(columns.step[part[-1]]),
            healed=after > part[-1],
        )
        for part in parts
    )


def _scaled_away(
    columns: StepColumns, bad: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Bad records whose step the loss scaler skipped: by its flag or total, or by the scale that fell."""
    away = np.zeros(len(bad), dtype=bool)
    skipped = columns.values.get("skipped")
    if skipped is not None:
        known = np.where(np.isfinite(skipped), skipped, 0.0)
        total = known.max(initial=0.0) > 1
        away |= (np.diff(np.maximum.accumulate(known), prepend=0.0) if total else known) > 0
    scale = columns.values.get("loss_scale")
    if scale is not None:
        fell = np.diff(np.where(np.isfinite(scale), scale, np.nan)) < 0
        # Logged before the scaler's update or after it; how the last step ended is not known.
        away[1:] |= fell
        away[:-1] |= fell
        away[-1] |= bool(scale[-1] > 1)
    away &= bad
    for part in np.split(np.arange(len(bad)), np.flatnonzero(np.diff(bad)) + 1):
        if len(part) > SCALER_RECORDS and bad[part[0]]:
            away[part] = False
    return away


def _rhythm(columns: StepColumns, name: str) -> Rhythm | None:
    values = columns.values.get(name)
    if values is None or np.isnan(values).all():
        return None
    steps = columns.step[~np.isnan(values)]
    every = int(np.diff(steps).min()) if len(steps) > 1 else 1
    return Rhythm(int(steps[0]), int(steps[-1]), max(every, 1))


def _moment(columns: StepColumns, row: int, value: float) -> Moment:
    return Moment(int(columns.step[row]), int(columns.line[row]), value)


def _saves(columns: StepColumns) -> tuple[Save, ...]:
    durations = columns.values.get("ckpt_duration_s")
    if durations is None:
        return ()
    nothing = np.full(len(columns), np.nan)
    own, took = (columns.values.get(name, nothing) for name in ("ckpt_write_s", "step_time_s"))
    rows = np.flatnonzero(durations > 0)
    return tuple(
        Save(int(columns.step[i]), int(columns.line[i]), float(durations[i]), float(own[i]), float(took[i]))
        for i in rows
    )


def _failed(columns: StepColumns) -> tuple[Moment, ...]:
    """Records in which the count of failed saves is higher than before.

    A count may be carried over from an earlier start: only where records begin with the run itself was it 0
    before the first one, and within one step no more than one save fails.
    """
    totals = columns.values.get("ckpt_failed_total")
    if totals is None:
        return ()
    rows = np.flatnonzero(~np.isnan(totals))
    if not len(rows):
        return ()
    from_start = columns.attempt == 0 and columns.step[0] <= 1
    carried = not from_start or (rows[0] == 0 and totals[0] > 1)
    grown = np.diff(totals[rows], prepend=totals[rows[0]] if carried else 0.0)
    return tuple(_moment(columns, int(i), float(totals[i])) for i in rows[grown > 0])


def _digests(columns: StepColumns) -> Digests | None:
    if columns.digest is None:
        return None
    import polars as pl

    rows = np.flatnonzero(columns.digest != "")
    hashes = pl.Series(columns.digest[rows]).hash().to_numpy()
    return Digests(columns.step[rows], columns.line[rows], hashes)


def _positions(columns: StepColumns) -> Positions | None:
    samples = columns.values.get("consumed_samples")
    if samples is None:
        return None
    rows = np.flatnonzero(np.isfinite(samples))
    if not len(rows):
        return None
    step, line, at = columns.step[rows], columns.line[rows], samples[rows]
    with np.errstate(over="ignore"):
        pace = np.diff(at) / np.diff(step)
    keep = np.ones(len(rows), dtype=bool)
    if len(rows) > 2:
        keep[1:-1] = ~np.isclose(pace[1:], pace[:-1], rtol=1e-9)
    return Positions(step[keep], line[keep], at[keep])


def _jumps(columns: StepColumns) -> tuple[Moment, ...]:
    """Where the wall clock and the measured step time do not agree; a pause between steps is no jump back."""
    took = columns.values.get("step_time_s")
    if took is None or len(columns) < 2:
        return ()
    gap = np.diff(columns.t)
    many = np.diff(columns.step) > 1
    off = gap - took[1:]
    rows = np.flatnonzero((gap < 0) & (off < -1.0) | (np.abs(off) > CLOCK_JUMP_S) & ~many) + 1
    return tuple(_moment(columns, int(i), float(off[i - 1])) for i in rows)
