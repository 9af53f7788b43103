"""Places in the data: a rank whose consumed samples go back, or begin anew after a resume."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.history import Positions, RankHistory
from harness.diagnose.signals.wording import verb, who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind


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
    """Ranks that read samples again: fewer than half of those whose positions are known.

    Where all ranks go back together it is an epoch that begins anew, or a job that was told to.
    """
    found: dict[int, _Rewound] = {}
    known: set[int] = set()
    earlier: dict[int, RankHistory] = {}
    for attempt in sorted(attempts):
        for history in attempts[attempt]:
            if history.positions is None:
                continue
            known.add(history.rank)
            before = earlier.get(history.rank)
            if back := _within(history) or (before and _after_resume(before, history)):
                found.setdefault(history.rank, back)
            earlier[history.rank] = history
    if not found or 2 * len(found) >= len(known):
        return None
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


def _within(history: RankHistory) -> _Rewound | None:
    positions = history.positions
    assert positions is not None
    back = np.flatnonzero(np.diff(positions.samples) < 0)
    if not len(back):
        return None
    row = int(back[0]) + 1
    expected = float(positions.samples[row - 1]) + _pace(positions)
    return _rewound_at(history, row, expected, resumed=False)


def _after_resume(before: RankHistory, history: RankHistory) -> _Rewound | None:
    """Whether a start goes on behind where the one before it had been after the same step."""
    old, new = before.positions, history.positions
    assert old is not None and new is not None
    step = int(new.step[0])
    expected = old.at(step)
    if expected is None and step > old.step[-1]:
        expected = float(old.samples[-1]) + _pace(old) * (step - int(old.step[-1]))
    if expected is None or _pace(old) != _pace(new) or new.samples[0] >= expected:
        return None
    return _rewound_at(history, 0, expected, resumed=True)


def _pace(positions: Positions) -> float:
    """Samples a step, as the run usually takes them."""
    if len(positions.step) < 2:
        return float("nan")
    pace = np.diff(positions.samples) / np.diff(positions.step)
    return float(pace[np.argmax(np.diff(positions.step))])


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
