"""Starts of a job inside one file: where steps go back for good, on most ranks, somebody started again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from harness.diagnose.signals.columns import Ints, StepColumns

LASTING_RECORDS = 5
"""Steps that stay back for so many records, or to the end of the file, may be a restart."""

MOST_STARTS = 100
"""A file that goes back more often is in disorder."""

FAR_GAPS, FAR_STEPS = 10, 1000
"""A step number is wild if nothing is within 10 times the run's length of it, and within 1000 usual gaps."""

FEW = 0.02
"""Wild are few: what more than this share of the records (and more than one) says is taken as it is."""


@dataclass(frozen=True)
class Cuts:
    """Rows of one file where steps go back for good, and rows (first, end) that go back and return at once.

    `resumed`: the step at each of `rows`. `gap`: steps from a record to the next, as usual. `back`: how often
    steps go back at all.
    """

    rows: tuple[int, ...] = ()
    resumed: tuple[int, ...] = ()
    aside: tuple[tuple[int, int], ...] = ()
    gap: int = 1
    back: int = 0


def near(step: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which step numbers are near others: a few that stand far away from all the rest are none of the run."""
    order = np.argsort(step, kind="stable")
    ascending = step[order]
    far = max(FAR_GAPS * len(step), FAR_STEPS) * _usual_gap(ascending)
    group = np.concatenate([[0], np.cumsum(np.diff(ascending) > far)])
    sizes = np.bincount(group)
    kept = (sizes > max(1, FEW * len(step))) | (sizes == sizes.max())
    found = np.empty(len(step), dtype=bool)
    found[order] = kept[group]
    return found


def cuts_of(step: Ints) -> Cuts:
    """Where the steps of a file, in file order, go back for good.

    Steps that go back and then leap to where they were are an evaluation that logs its own, or lines that
    came late: no restart.
    """
    drops = np.flatnonzero(np.diff(step) < 0) + 1
    if not len(drops):
        return Cuts()
    gap = _usual_gap(np.sort(step))
    rows: list[int] = []
    aside: list[tuple[int, int]] = []
    begin, done = 0, 0
    highest = np.maximum.accumulate(step)
    for row in drops.tolist():
        if row < done:
            continue
        end = begin + int(np.searchsorted(highest, highest[row - 1 - begin], side="right"))
        leaps = end < len(step) and int(step[end] - step[end - 1]) > 2 * gap
        if leaps or (end == len(step) and _again(step, row, aside)):
            aside.append((row, end))
            done = end
        elif end - row >= LASTING_RECORDS or end == len(step):
            rows.append(row)
            if len(rows) > MOST_STARTS:
                return Cuts(gap=gap, back=len(drops))
            begin, highest = row, np.maximum.accumulate(step[row:])
    return Cuts(tuple(rows), tuple(step[rows].tolist()), tuple(aside), gap, len(drops))


def agreed(files: Sequence[Cuts]) -> tuple[int, ...]:
    """The steps at which the job resumed, in file order: where most ranks' files go back for good."""
    if not files:
        return ()
    most = sorted((len(f.rows) for f in files), reverse=True)[len(files) // 2]
    like = [f.resumed for f in files if len(f.rows) == most]
    middle = np.median(np.array(like, dtype=np.int64).reshape(len(like), most), axis=0).astype(np.int64)
    return tuple(at for at in middle.tolist() if 2 * sum(_resumes(f, at) for f in files) > len(files))


def split(columns: StepColumns, cuts: Cuts, resumed: Sequence[int]) -> list[tuple[int, StepColumns]]:
    """The records of each start, numbered from 0, in the order of their steps.

    Only cuts at which the job `resumed` count. Of several records of one step in one start the last counts,
    but for what goes back and never gets to where the file was: it is no part of the run.
    """
    begins = [(0, 0), *_matched(cuts, resumed), (0, len(columns))]
    found = []
    for (number, begin), (_, end) in pairwise(begins):
        rows = _in_order(
            columns.step, begin, end, (*cuts.aside, *_never_back(columns.step, cuts, begin, end))
        )
        found.append((number, columns if len(rows) == len(columns) and _rises(rows) else _of(columns, rows)))
    return found


def undone(cuts: Cuts, resumed: Sequence[int]) -> int:
    """How often steps go back without a restart."""
    return cuts.back - len(_matched(cuts, resumed))


def _usual_gap(ascending: Ints) -> int:
    gaps = np.diff(ascending)
    gaps = gaps[gaps > 0]
    return int(np.median(gaps)) if len(gaps) else 1


def _again(step: Ints, row: int, aside: Iterable[tuple[int, int]]) -> bool:
    """Whether the file ends in what went back and returned before: from the same step, no longer."""
    length = len(step) - row
    return any(step[first] == step[row] and length <= end - first for first, end in aside)


def _resumes(cuts: Cuts, at: int) -> bool:
    return any(abs(own - at) <= LASTING_RECORDS * cuts.gap for own in cuts.resumed)


def _matched(cuts: Cuts, resumed: Sequence[int]) -> list[tuple[int, int]]:
    """The start that begins at each row of a file where the job resumed too."""
    found: list[tuple[int, int]] = []
    done = 0
    for number, at in enumerate(resumed, 1):
        fitting = [i for i in range(done, len(cuts.rows)) if _resumes_at(cuts, i, at)]
        if fitting:
            # Several are resumes at the same step: of as many as the job has, each takes the next.
            best = (
                fitting[0]
                if len(cuts.rows) - done <= len(resumed) - number + 1
                else _nearest(cuts, fitting, at)
            )
            found.append((number, cuts.rows[best]))
            done = best + 1
    return found


def _resumes_at(cuts: Cuts, index: int, at: int) -> bool:
    return abs(cuts.resumed[index] - at) <= LASTING_RECORDS * cuts.gap


def _nearest(cuts: Cuts, indexes: Sequence[int], at: int) -> int:
    return min(indexes, key=lambda i: abs(cuts.resumed[i] - at))


def _in_order(step: Ints, begin: int, end: int, aside: Iterable[tuple[int, int]]) -> Ints:
    """Rows of one start by step, the last of each step; of what was set aside only what is new there."""
    rows = np.arange(begin, end)
    own = np.ones(end - begin, dtype=bool)
    for first, last in aside:
        if begin <= first < end:
            below = int(step[first:last].max()) < int(step[begin])
            own[first - begin : last - begin] = False
            if below:
                rows[first - begin : last - begin] = -1
    own, rows = own[rows >= 0], rows[rows >= 0]
    ordered: Ints = rows[np.lexsort((own, step[rows]))]
    kept: Ints = ordered[np.append(np.diff(step[ordered]) != 0, True)]
    return kept


def _never_back(step: Ints, cuts: Cuts, begin: int, end: int) -> list[tuple[int, int]]:
    """Rows of a start from a cut inside it on that do not get beyond the step before that cut."""
    inside = [row for row in cuts.rows if begin < row < end]
    return [(row, end) for row in inside if step[row:end].max() <= step[begin:row].max()][:1]


def _rises(rows: Ints) -> bool:
    return bool((np.diff(rows) > 0).all())


def _of(columns: StepColumns, rows: Ints) -> StepColumns:
    return replace(
        columns,
        t=columns.t[rows],
        step=columns.step[rows],
        line=columns.line[rows],
        values={name: values[rows] for name, values in columns.values.items()},
        digest=columns.digest[rows] if columns.digest is not None else None,
    )
