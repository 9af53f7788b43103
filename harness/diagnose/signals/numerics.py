"""Numbers that went wrong: where a value first was not finite, and which replica stopped agreeing."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from harness.diagnose.signals.history import CHECKED, Moment, RankHistory
from harness.diagnose.signals.wording import verb, who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

_NAMES = {"loss": "loss", "grad_norm": "gradient norm", "param_norm": "parameter norm"}


def not_finite(histories: Sequence[RankHistory]) -> Finding | None:
    """NaN or infinity in loss, gradient norm or parameter norm: the rank and step where it appears first.

    A rank is convicted only where others recorded a finite value of the same kind in that step: an average
    over ranks is wrong on all of them at once, and says nothing of whose it was.
    """
    found = [(m.step, CHECKED.index(name), h.rank) for h in histories for name, m in h.not_finite.items()]
    if not found:
        return None
    step, order, _ = min(found)
    name = CHECKED[order]
    first = {h.rank: h for h in histories if (m := h.not_finite.get(name)) and m.step == step}
    others = [h for h in histories if h.rank not in first and name in h.cells and _reached(h, step)]
    culprits = tuple(sorted(first)) if others else ()
    seen = f"{_NAMES[name]} is not finite from step {step} on"
    whose = who(sorted(first))
    summary = f"{whose}: {seen}; the others' is finite in that step"
    if not others:
        summary = f"{seen}, on every rank that records it ({whose}): it may be an average, and names nobody"
    after = [h.rank for h in histories if h.not_finite and h.rank not in first]
    return Finding(
        source="signal",
        kind=Kind.LOSS_NOT_FINITE,
        confidence=Confidence.CERTAIN,
        summary=summary,
        culprits=culprits,
        victims=tuple(h.rank for h in histories if h.rank not in culprits),
        where=Where(step=step),
        evidence=tuple(_cite(h, h.not_finite[name], seen) for h in list(first.values())[:3]),
        chain=(
            f"{whose}: {seen}" if others else seen,
            *((f"-> ranks {format_ranks(after)} take it over with the next exchange",) if after else ()),
        ),
    )


def _reached(history: RankHistory, step: int) -> bool:
    return bool(history.steps[0] <= step <= history.steps[-1])


def _cite(history: RankHistory, moment: Moment, says: str) -> Citation:
    # Line 0: the record is known from another file than the one that is named.
    line = moment.line or None
    return Citation("signal", f"rank {history.rank}: {says}", history.file, line, rank=history.rank)


def odd_replica(histories: Sequence[RankHistory]) -> Finding | None:
    """Replicas whose digests agreed, until one of them no longer did.

    Who must agree is learnt from the records themselves: ranks that hold the same digest in the first step
    that all of them recorded. Shards never agree, and are never compared. Three replicas convict the odd one;
    two are both suspects.
    """
    having = [h for h in histories if h.digests is not None and len(h.digests.step)]
    if len(having) < 2:
        return None
    common = having[0].digests.step  # type: ignore[union-attr]
    for history in having[1:]:
        common = np.intersect1d(common, history.digests.step)  # type: ignore[union-attr]
    if not len(common):
        return None
    table = np.stack([_at(h, common) for h in having])
    replicas: dict[int, list[int]] = {}
    for row, first in enumerate(table[:, 0].tolist()):
        replicas.setdefault(first, []).append(row)
    found = [f for rows in replicas.values() if len(rows) > 1 and (f := _parted(table, rows, common))]
    if not found:
        return None
    column, rows, odd = min(found, key=lambda f: f[0])
    return _odd(having, int(common[column]), rows, odd)


def _at(
    history: RankHistory, steps: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    digests = history.digests
    assert digests is not None
    return digests.hash[np.searchsorted(digests.step, steps)]


def _parted(
    table: np.ndarray[tuple[int, int], np.dtype[np.uint64]],
    rows: list[int],
    common: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> tuple[int, list[int], list[int]] | None:
    """The first step in which replicas differ: its column, the replicas, and the minority among them."""
    group = table[rows]
    differing = np.flatnonzero((group != group[0]).any(axis=0))
    if not len(differing):
        return None
    column = int(differing[0])
    values = group[:, column].tolist()
    (usual, count), *_ = Counter(values).most_common()
    odd = [row for row, value in zip(rows, values, strict=True) if value != usual]
    return column, rows, odd if 2 * count > len(rows) and len(rows) > 2 else rows


def _odd(having: Sequence[RankHistory], step: int, rows: list[int], odd: list[int]) -> Finding:
    ranks = tuple(having[row].rank for row in odd)
    peers = tuple(having[row].rank for row in rows if row not in odd)
    decided = bool(peers)
    said = (
        f"holds other numbers than {len(peers)} replicas that agree" if decided else "hold different numbers"
    )
    evidence = []
    for row in (*odd[:3], *[r for r in rows if r not in odd][:1]):
        history = having[row]
        assert history.digests is not None
        at = int(np.searchsorted(history.digests.step, step))
        line = int(history.digests.line[at])
        what = "digest differs from its replicas'" if row in odd else "digest as its replicas'"
        evidence.append(
            Citation(
                "signal", f"rank {history.rank}, step {step}: {what}", history.file, line, rank=history.rank
            )
        )
    return Finding(
        source="signal",
        kind=Kind.SILENT_CORRUPTION,
        confidence=(Confidence.CERTAIN if len(peers) >= 3 else Confidence.LIKELY)
        if decided
        else Confidence.POSSIBLE,
        summary=f"{who(ranks)} {verb(ranks, said, said.replace('holds', 'hold'))} from step {step} on",
        culprits=ranks if decided else (),
        suspects=() if decided else ranks,
        victims=peers,
        where=Where(step=step),
        evidence=tuple(evidence),
        chain=(
            f"{who(ranks)}: bits that differ from its replicas' in step {step}",
            "-> checkpoints since then hold what this rank computed, or what it did not",
        ),
    )
