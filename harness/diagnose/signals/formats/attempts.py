"""Pieces of records into one set of columns for each rank, attempt and format."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from harness.diagnose.signals.columns import Floats, StepColumns
from harness.diagnose.signals.formats.builder import Piece

SLACK_S = 60.0
"""Ranks of one attempt begin and end this close to each other; a rank that comes twice needs no slack."""

NEAR_ATTEMPTS = 8
"""A piece is compared with so many attempts before it, and with so many that have its first and last step."""


@dataclass
class _Attempt:
    """The pieces of one rank in one attempt; `begin` and `end` in unix seconds, NaN without times."""

    rank: int
    explicit: int | None
    pieces: list[Piece] = field(default_factory=list)
    process: bool = False
    last_step: int = -1
    begin: float = math.nan
    end: float = math.nan

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.process |= piece.process
        self.explicit = piece.attempt if self.explicit is None else self.explicit
        self.last_step = max(self.last_step, int(piece.columns.step.max()))
        begin, end = _span(piece.columns)
        self.begin, self.end = float(np.fmin(self.begin, begin)), float(np.fmax(self.end, end))


def merged(pieces: Iterable[Piece]) -> tuple[StepColumns, ...]:
    """One StepColumns for each rank, attempt and format, ordered so.

    What overlaps in time, or speaks of the same steps with the same numbers, is one attempt; what goes on
    after it with higher steps too (a rotated log), unless both are a process's own files. Attempts are
    numbered by the folders that name them, else from 0 in the order of time, alike for all ranks.
    """
    found: list[StepColumns] = []
    ordered = sorted(pieces, key=lambda p: p.columns.format)
    for _, of_format in groupby(ordered, key=lambda p: p.columns.format):
        by_rank: dict[int, list[Piece]] = {}
        for piece in of_format:
            by_rank.setdefault(piece.columns.rank, []).append(piece)
        attempts = [a for rank in sorted(by_rank) for a in _attempts(rank, by_rank[rank])]
        for number, attempt in _numbered(attempts):
            columns = _joined([piece.columns for piece in attempt.pieces])
            found.append(replace(columns, attempt=number))
    return tuple(sorted(found, key=lambda c: (c.format, c.rank, c.attempt)))


def _attempts(rank: int, pieces: list[Piece]) -> list[_Attempt]:
    attempts: list[_Attempt] = []
    alike: dict[tuple[int, int], list[_Attempt]] = {}
    for piece in sorted(_cut_at_processes(pieces), key=_order):
        steps = piece.columns.step
        same = alike.setdefault((int(steps[0]), int(steps[-1])), [])
        near = [*same[:NEAR_ATTEMPTS], *attempts[-NEAR_ATTEMPTS:]]
        fitting = [a for a in near if _belongs(piece, a, last=a is attempts[-1])]
        if not fitting:
            fitting = [_Attempt(rank, piece.attempt)]
            attempts += fitting
            same += fitting
        fitting[-1].add(piece)
    return attempts


def _order(piece: Piece) -> tuple[float, int, str, int]:
    begin, _ = _span(piece.columns)
    first = int(piece.columns.line[0])
    return (math.inf if math.isnan(begin) else begin, piece.attempt or 0, piece.columns.file, first)


def _belongs(piece: Piece, attempt: _Attempt, *, last: bool) -> bool:
    if None not in (piece.attempt, attempt.explicit) and piece.attempt != attempt.explicit:
        return False
    begin, end = _span(piece.columns)
    if begin <= attempt.end and end >= attempt.begin:
        return True
    if piece.process and attempt.process:
        return False
    steps = piece.columns.step
    if last and int(steps.min()) > attempt.last_step:
        return True
    timed = not (math.isnan(begin) or math.isnan(attempt.begin))
    return not timed and _agree(piece.columns, attempt.pieces[0].columns)


def _agree(a: StepColumns, b: StepColumns) -> bool:
    """Whether two pieces share steps, and no number of a shared step differs."""
    _, at, of = np.intersect1d(a.step, b.step, return_indices=True)
    if not len(at):
        return False
    for name in a.values.keys() & b.values.keys():
        one, other = a.values[name][at], b.values[name][of]
        if not (np.isnan(one) | np.isnan(other) | (one == other)).all():
            return False
    return True


def _cut_at_processes(pieces: list[Piece]) -> list[Piece]:
    """Log lines that run on over a restart, cut where another process's own records begin."""
    begins = sorted(
        float(p.columns.t[0] - np.nan_to_num(p.columns.values.get("step_time_s", np.zeros(1))[0]))
        for p in pieces
        if p.process and not math.isnan(p.columns.t[0])
    )[1:]
    if not begins:
        return pieces
    cut: list[Piece] = []
    for piece in pieces:
        if piece.process or np.isnan(piece.columns.t).any():
            cut.append(piece)
            continue
        part = np.searchsorted(np.array(begins), piece.columns.t, side="right")
        cut += [replace(piece, columns=_rows(piece.columns, part == n)) for n in np.unique(part)]
    return cut


def _rows(columns: StepColumns, keep: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> StepColumns:
    values = {name: column[keep] for name, column in columns.values.items()}
    return replace(
        columns, t=columns.t[keep], step=columns.step[keep], line=columns.line[keep], values=values
    )


def _numbered(attempts: list[_Attempt]) -> list[tuple[int, _Attempt]]:
    """Attempts of all ranks, side by side in time: a rank that comes again, or a silence, begins another."""
    numbered: list[tuple[int, _Attempt]] = []
    number, explicit, ranks, end = -1, None, set[int](), -math.inf
    for attempt in sorted((a for a in attempts if not math.isnan(a.begin)), key=lambda a: (a.begin, a.rank)):
        named = attempt.explicit
        other = named is not None and explicit is not None and named != explicit
        if number < 0 or other or attempt.rank in ranks or attempt.begin > end + SLACK_S:
            number = max(number + 1, named if named is not None else 0)
            explicit, ranks, end = named, set(), -math.inf
        explicit = named if explicit is None else explicit
        ranks.add(attempt.rank)
        end = max(end, attempt.end)
        numbered.append((number, attempt))
    taken = {(a.rank, n) for n, a in numbered}
    for attempt in attempts:
        if math.isnan(attempt.begin):
            n = attempt.explicit or 0
            while (attempt.rank, n) in taken:
                n += 1
            taken.add((attempt.rank, n))
            numbered.append((n, attempt))
    return numbered


def _span(columns: StepColumns) -> tuple[float, float]:
    if np.isnan(columns.t).all():
        return math.nan, math.nan
    return float(np.nanmin(columns.t)), float(np.nanmax(columns.t))


def _joined(pieces: list[StepColumns]) -> StepColumns:
    """Row by row: the file with most records first, then what the others know besides."""
    if len(pieces) == 1:
        return pieces[0]
    main, *others = sorted(pieces, key=len, reverse=True)
    step, t, line = list(main.step), list(main.t), list(main.line)
    rows = {int(s): i for i, s in enumerate(step)}
    places = []
    for other in others:
        for i, s in enumerate(other.step):
            if int(s) not in rows:
                rows[int(s)] = len(step)
                step.append(s)
                t.append(math.nan)
                line.append(other.line[i] if other.file == main.file else np.int64(0))
        places.append(np.array([rows[int(s)] for s in other.step]))
    times = np.array(t, np.float64)
    names = sorted({name for piece in pieces for name in piece.values})
    values: dict[str, Floats] = {name: np.full(len(step), math.nan) for name in names}
    for name, column in main.values.items():
        values[name][: len(main)] = column
    for other, place in zip(others, places, strict=True):
        _fill(times, place, other.t)
        for name, column in other.values.items():
            # Where the main file has a field, its silence about a step says that there was nothing.
            known = place >= (len(main) if name in main.values else 0)
            _fill(values[name], place[known], column[known])
    joined = replace(
        main, t=times, step=np.array(step, np.int64), line=np.array(line, np.int64), values=values
    )
    if len(joined) == len(main):
        return joined
    order = np.argsort(joined.step, kind="stable")
    return replace(
        joined,
        t=times[order],
        step=joined.step[order],
        line=joined.line[order],
        values={name: column[order] for name, column in values.items()},
    )


def _fill(into: Floats, place: np.ndarray[tuple[int], np.dtype[np.int64]], column: Floats) -> None:
    new = np.isnan(into[place])
    into[place[new]] = column[new]
