"""Replicas of the same numbers, learnt from digests, and the one that stopped agreeing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.columns import Ints
from harness.diagnose.signals.history import RankHistory
from harness.diagnose.signals.wording import verb, who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

LEARNT_CHANGES = 5
"""Changes of a digest through which ranks must agree to be replicas: equal beginnings prove nothing."""

LASTING_RECORDS = 2
"""Records from which on a digest that stays odd is more than one bad record."""

_Table = np.ndarray[tuple[int, int], np.dtype[np.uint64]]


@dataclass(frozen=True)
class _Parting:
    """Rows of the table: the replicas that go on alike, and those that do not, from `column` on.

    `lasting`: they never agree again; `records`: in how many records they differ.
    """

    column: int
    usual: tuple[int, ...]
    odd: tuple[int, ...]
    lasting: bool
    records: int


def odd_replica(histories: Sequence[RankHistory]) -> Finding | None:
    """Replicas whose digests agreed while training changed them, until one of them no longer did.

    Shards never agree, or only at first, and are never compared. One rank that parts for good from two that
    go on alike is convicted; two replicas, and ranks that part together, as at a change of roles, are
    suspects. Replicas that agree again were trained apart for a while, or logged one bad record. What parts
    where loss or gradients are not finite is an effect of that.
    """
    having = _having(histories)
    if len(having) < 2:
        return None
    common = _common_steps(having)
    table = np.stack([_at(h, common) for h in having]) if len(common) else np.zeros((0, 0), np.uint64)
    found = [p for rows in _replicas(table) if (p := _parted(table, rows))]
    if not found:
        return None
    column = min(p.column for p in found)
    now = [p for p in found if p.column == column]
    involved = [having[row] for p in now for row in (*p.usual, *p.odd)]
    before = int(common[column - 1])
    if any(_not_finite_between(h, before, int(common[column])) for h in involved):
        return None
    return _judged(having, int(common[column]), now)


def _having(histories: Sequence[RankHistory]) -> list[RankHistory]:
    """Ranks with about as many digests as others have: one with few would leave little to compare."""
    counts = {h.rank: len(h.digests.step) if h.digests is not None else 0 for h in histories}
    most = max(counts.values(), default=0)
    return [h for h in histories if counts[h.rank] and 2 * counts[h.rank] >= most]


def _common_steps(having: Sequence[RankHistory]) -> Ints:
    common = having[0].digests.step  # type: ignore[union-attr]
    for history in having[1:]:
        common = np.intersect1d(common, history.digests.step)  # type: ignore[union-attr]
    return common


def _at(history: RankHistory, steps: Ints) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    digests = history.digests
    assert digests is not None
    return digests.hash[np.searchsorted(digests.step, steps)]


def _replicas(table: _Table) -> list[list[int]]:
    """Rows that are alike until their digest has changed five times."""
    groups: dict[bytes, list[int]] = {}
    for row, values in enumerate(table):
        changes = np.flatnonzero(values[1:] != values[:-1]) + 1
        if len(changes) >= LEARNT_CHANGES:
            learnt = values[: changes[LEARNT_CHANGES - 1] + 1]
            groups.setdefault(learnt.tobytes(), []).append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


def _parted(table: _Table, rows: list[int]) -> _Parting | None:
    """The first record in which replicas differ, and who goes on with whom from there."""
    group = table[rows]
    differing = np.flatnonzero((group != group[0]).any(axis=0))
    if not len(differing):
        return None
    column = int(differing[0])
    tails = [row.tobytes() for row in group[:, column:]]
    (tail, _), *_ = Counter(tails).most_common(1)
    usual = tuple(row for row, its in zip(rows, tails, strict=True) if its == tail)
    odd = tuple(row for row in rows if row not in usual)
    apart = table[list(odd), column:] != table[usual[0], column:]
    late = _logged_late(table[list(odd), column:], table[usual[0]])
    return _Parting(column, usual, odd, bool(apart.all()) and not late, int(apart.sum(axis=1).max()))


def _logged_late(odd: _Table, usual: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> bool:
    """Whether odd ranks hold what the others held before: then it is their log that lags."""
    held = {value: column for column, value in reversed([*enumerate(usual.tolist())])}
    begin = len(usual) - odd.shape[1]
    late = {v for row in odd.tolist() for at, v in enumerate(row, begin) if held.get(v, at) < at}
    return len(late) > 1 and 2 * len(late) > len(np.unique(odd))


def _not_finite_between(history: RankHistory, before: int, step: int) -> bool:
    """Whether a loss or gradient was not finite after one common record and up to the next."""
    names = ("loss", "grad_norm")
    return any(e.step <= step and e.last >= before for n in names for e in history.not_finite.get(n, ()))


def _judged(having: Sequence[RankHistory], step: int, partings: list[_Parting]) -> Finding | None:
    usual = tuple(row for p in partings for row in p.usual)
    odd = tuple(row for p in partings for row in p.odd)
    lasting = all(p.lasting and p.records >= LASTING_RECORDS for p in partings)
    once = all(p.records == 1 for p in partings)
    if len(usual) == len(odd) == 1:
        return _finding(having, step, (), (*usual, *odd), Confidence.POSSIBLE, "") if lasting else None
    if len(odd) >= len(usual):
        return None
    if len(odd) == 1 and lasting:
        certain = len(usual) >= 3
        return _finding(having, step, usual, odd, Confidence.CERTAIN if certain else Confidence.LIKELY, "")
    if len(odd) == 1 and once:
        return _finding(having, step, usual, odd, Confidence.POSSIBLE, "one record")
    return _finding(having, step, usual, odd, Confidence.POSSIBLE, "together") if lasting else None


def _finding(
    having: Sequence[RankHistory],
    step: int,
    usual: tuple[int, ...],
    odd: tuple[int, ...],
    confidence: Confidence,
    doubt: str,
) -> Finding:
    """The finding; without `usual` nobody can tell who is right, and with a doubt nobody is convicted."""
    ranks = tuple(sorted(having[row].rank for row in odd))
    peers = tuple(sorted(having[row].rank for row in usual))
    convicted = bool(peers) and not doubt
    other = f"other numbers than {len(peers)} replicas that agree"
    said = f"{verb(ranks, 'holds', 'hold')} {other if peers else 'different numbers'}"
    when = f"in step {step} only" if doubt == "one record" else f"from step {step} on"
    why = {
        "one record": ": numbers do not heal, and it may be a bad record",
        "together": ": ranks that part together may have got another part to play",
    }.get(doubt, "")
    later = "-> checkpoints since then hold what this rank computed, or what it did not"
    return Finding(
        source="signal",
        kind=Kind.SILENT_CORRUPTION,
        confidence=confidence,
        summary=f"{who(ranks)} {said} {when}{why}",
        culprits=ranks if convicted else (),
        suspects=() if convicted else ranks,
        victims=peers,
        where=Where(step=step),
        evidence=(
            *(_cite(having[row], step, "digest differs from its replicas'") for row in odd[:3]),
            *(_cite(having[row], step, "digest as its replicas'") for row in usual[:1]),
        ),
        chain=(
            f"{who(ranks)}: bits that differ from its replicas' in step {step}",
            *(() if doubt else (later,)),
        ),
    )


def _cite(history: RankHistory, step: int, what: str) -> Citation:
    assert history.digests is not None
    line = int(history.digests.line[np.searchsorted(history.digests.step, step)])
    return Citation(
        "signal", f"rank {history.rank}, step {step}: {what}", history.file, line, rank=history.rank
    )
