"""Places in the data: a rank whose consumed samples go back, or begin anew after a resume."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.columns import Floats
from harness.diagnose.signals.history import Positions, RankHistory
from harness.diagnose.signals.wording import verb, who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

ODD_PACE = 1.5
"""Times the usual pace at which a position that goes on from a record contradicts that record."""

NEAR_STEPS = 2
"""Steps' worth of samples within which a position is at its beginning."""


@dataclass(frozen=True)
class _Rewound:
    rank: int
    step: int
    expected: float
    found: float
    file: str
    line: int
    resumed: bool


def rewound(attempts: Mapping[int, Sequence[RankHistory]]) -> Finding | None:
    """Ranks that read samples again: fewer than half of those that could be seen to.

    Within a start that is whoever has a place in the data; after a resume, whoever had one before, of as many
    ranks, at the same pace. Where all go back together, it is an epoch that begins anew or a job told to.
    """
    before: Mapping[int, RankHistory] = {}
    for attempt in sorted(attempts):
        placed = {h.rank: h for h in attempts[attempt] if h.positions is not None}
        for found, known in (_all_resumed(before, placed), _all_within(placed)):
            if found and 2 * len(found) < len(known):
                return _finding(found, known)
        before = placed or before
    return None


def _all_within(placed: Mapping[int, RankHistory]) -> tuple[dict[int, _Rewound], set[int]]:
    return {rank: back for rank, h in placed.items() if (back := _within(h))}, {*placed}


def _all_resumed(
    before: Mapping[int, RankHistory], placed: Mapping[int, RankHistory]
) -> tuple[dict[int, _Rewound], set[int]]:
    """Ranks that go on behind where the start before this one had been, and all that can be asked."""
    found: dict[int, _Rewound] = {}
    known: set[int] = set()
    if before.keys() != placed.keys():
        return found, known
    for rank, history in placed.items():
        expected = _expected(before[rank], history)
        positions = history.positions
        if expected is None or positions is None:
            continue
        known.add(rank)
        if positions.samples[0] < expected:
            found[rank] = _rewound_at(history, 0, expected, resumed=True)
    return found, known


def _within(history: RankHistory) -> _Rewound | None:
    """The first fall that lasts and is not to the beginning, where the next epoch begins.

    The record before the fall and the one at it must go on as usual from and to their neighbours, else one of
    them is a bad record.
    """
    positions = history.positions
    assert positions is not None
    steps, samples, pace = positions.step, positions.samples, _pace(positions)
    usual = _usual(positions)
    for row in (np.flatnonzero(np.diff(samples) < 0) + 1).tolist():
        if row < 2 or row + 1 >= len(samples) or not (usual[row - 2] and usual[row]):
            continue
        near = pace * (NEAR_STEPS + int(steps[row] - steps[row - 1]))
        if samples[row] <= near or abs(samples[row] - samples[0]) <= near:
            continue
        return _rewound_at(history, row, float(samples[row - 1]) + pace, resumed=False)
    return None


def _expected(before: RankHistory, history: RankHistory) -> float | None:
    """The position that a start's first step should have, None where the records before do not say."""
    old, new = before.positions, history.positions
    assert old is not None and new is not None
    step = int(new.step[0])
    if len(old.step) < 2 or len(new.step) < 2 or not np.isclose(_pace(old), _pace(new)) or not _usual(new)[0]:
        return None
    if not _usual_around(old, step):
        return None
    if step > old.step[-1]:
        return float(old.samples[-1]) + _pace(old) * (step - int(old.step[-1]))
    return old.at(step)


def _usual_around(positions: Positions, step: int) -> bool:
    """Whether positions grow as usual wherever records touch a step, or at the last ones before it."""
    touching = (positions.step[:-1] <= step) & (positions.step[1:] >= step)
    if step > positions.step[-1]:
        touching[-1] = True
    return bool(touching.any() and _usual(positions)[touching].all())


def _usual(positions: Positions) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each two neighbouring records, whether the position grows between them as it usually does."""
    paces = _paces(positions)
    return (paces >= 0) & (paces <= ODD_PACE * _pace(positions))


def _paces(positions: Positions) -> Floats:
    paces: Floats = np.diff(positions.samples) / np.diff(positions.step)
    return paces


def _pace(positions: Positions) -> float:
    """Samples a step, as the run takes them in most of its steps; NaN where one record is all there is."""
    if len(positions.step) < 2:
        return float("nan")
    paces, spans = _paces(positions), np.diff(positions.step)
    order = np.argsort(paces)
    middle = int(np.searchsorted(np.cumsum(spans[order]), spans.sum() / 2))
    return float(paces[order[middle]])


def _rewound_at(history: RankHistory, row: int, expected: float, resumed: bool) -> _Rewound:
    positions = history.positions
    assert positions is not None
    return _Rewound(
        history.rank,
        int(positions.step[row]),
        expected,
        float(positions.samples[row]),
        history.file,
        int(positions.line[row]),
        resumed,
    )


def _finding(found: Mapping[int, _Rewound], known: set[int]) -> Finding:
    ranks = tuple(sorted(found))
    first = found[ranks[0]]
    when = f"after the resume at step {first.step}" if first.resumed else f"in step {first.step}"
    peers = tuple(sorted(known - found.keys()))
    return Finding(
        source="signal",
        kind=Kind.DATA_CORRUPT,
        confidence=Confidence.CERTAIN if len(peers) >= 3 else Confidence.LIKELY,
        summary=(
            f"{who(ranks)} {verb(ranks, 'reads', 'read')} samples again {when}: position {first.found:.0f}, "
            f"where its own record says {first.expected:.0f}; {who(peers)} went on where they were"
        ),
        culprits=ranks,
        victims=peers,
        where=Where(step=first.step),
        evidence=tuple(
            Citation(
                "signal",
                f"rank {f.rank}, step {f.step}: consumed_samples {f.found:.0f}, expected {f.expected:.0f}",
                f.file,
                f.line,
                rank=f.rank,
            )
            for f in list(found.values())[:3]
        ),
        chain=(f"{who(ranks)}: its place in the data was not restored", "-> samples count twice in training"),
    )
