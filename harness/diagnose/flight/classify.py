"""What kind of break a departure is: the edit that turns the peers' order into the odd rank's."""

import dataclasses
from collections.abc import Sequence
from enum import Enum

from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.intern import Signature, Site
from harness.diagnose.flight.streams import Stream
from harness.model.kinds import Kind

Call = tuple[int, int]

LOOKAHEAD = 64
"""Calls around a departure that are compared; more change nothing and cost time."""


class Edit(Enum):
    """How an odd order differs from the peers' order."""

    SUBSTITUTED = 0
    SWAPPED = 1
    SKIPPED = 2
    EXTRA = 3
    BLOCK = 4


_KINDS = {
    Edit.SWAPPED: Kind.COLLECTIVE_ORDER_MISMATCH,
    Edit.SKIPPED: Kind.COLLECTIVE_SKIPPED,
    Edit.EXTRA: Kind.COLLECTIVE_EXTRA,
    Edit.BLOCK: Kind.MICROBATCH_MISMATCH,
}


def classify(evidence: FlightEvidence, odd: Stream, peers: Stream, index: int) -> Kind:
    """The kind of break at `index`, seen from `odd`, with `peers` the order that the others kept.

    First edits that later calls confirm; then the peers' next call, a repeat, a block that runs once
    more or once less; then the call site. Whatever concerns a send or a receive is a p2p mismatch.
    """
    mine = _calls(odd, index, index + LOOKAHEAD)
    theirs = _calls(peers, index, index + LOOKAHEAD)
    history = _calls(peers, 0, index)
    if not mine or not theirs:
        edit: Edit | None = Edit.EXTRA if mine else Edit.SKIPPED
    else:
        replaced = _mismatch(evidence, mine[0], theirs[0]) is not None and _same_function(
            evidence.interner.sites[mine[0][1]], evidence.interner.sites[theirs[0][1]]
        )
        edit = _confirmed_edit(mine, theirs, history, replaced)
        edit = edit or _unconfirmed_edit(mine, theirs, history)
    if edit is not Edit.BLOCK and _concerns_p2p(evidence, odd, peers, index, edit):
        return Kind.P2P_MISMATCH
    if edit is Edit.SUBSTITUTED:
        return _mismatch(evidence, mine[0], theirs[0]) or Kind.COLLECTIVE_TYPE_MISMATCH
    return _by_site(evidence, mine[0], theirs[0]) if edit is None else _KINDS[edit]


def classify_tie(evidence: FlightEvidence, one: Stream, other: Stream, index: int) -> Kind:
    """The kind where no majority says which side is odd: only what holds seen from both sides."""
    if min(len(one), len(other)) <= index:
        return Kind.COLLECTIVE_TYPE_MISMATCH
    if _concerns_p2p(evidence, one, other, index, None):
        return Kind.P2P_MISMATCH
    kind = _by_site(evidence, one.call(index), other.call(index))
    return Kind.COLLECTIVE_TYPE_MISMATCH if kind is Kind.COLLECTIVE_EXTRA else kind


def _confirmed_edit(
    mine: Sequence[Call], theirs: Sequence[Call], before: Sequence[Call], replaced: bool
) -> Edit | None:
    """The edit after which most calls agree again, or None where nothing later confirms any.

    `replaced`: the two calls are of one function and differ in one thing only. At equal length a
    substitution wins over a shift, and a short shift over a long one; and where the peers issued nothing
    more that could speak for or against a substitution, it wins over an extra call.
    """
    found: list[tuple[int, int, Edit]] = []
    if replaced:
        found.append((_overlap(mine[1:], theirs[1:]), 0, Edit.SUBSTITUTED))
    if len(mine) > 1 and len(theirs) > 1 and (mine[0], mine[1]) == (theirs[1], theirs[0]):
        found.append((2 + _overlap(mine[2:], theirs[2:]), 0, Edit.SWAPPED))
    for width in range(1, len(theirs)):
        edit = Edit.BLOCK if _runs_again(theirs[:width], before, width) else Edit.SKIPPED
        found.append((_overlap(mine, theirs[width:]), -width, edit))
    for width in range(1, len(mine)):
        edit = Edit.BLOCK if _runs_again(mine[:width], before, width) else Edit.EXTRA
        found.append((_overlap(mine[width:], theirs), -width, edit))
    length, _, edit = max(found, key=lambda candidate: candidate[:2], default=(0, 0, Edit.EXTRA))
    if replaced and edit is Edit.EXTRA and len(theirs) == 1 and mine[0] not in before:
        return Edit.SUBSTITUTED
    return edit if length else None


def _unconfirmed_edit(mine: Sequence[Call], theirs: Sequence[Call], history: Sequence[Call]) -> Edit | None:
    """What the history foretells where both sides stand and nothing later was issued.

    A block that has run twice already runs again: micro-batches, rather than a skip into the next step,
    which looks alike here (per-step records tell them apart).
    """
    widths = range(2, min(LOOKAHEAD, len(history)) + 1)
    if any(_ran_twice(history, width) and _runs_again(mine, history, width) for width in widths):
        return Edit.BLOCK
    if mine[0] in (*theirs[1:2], *_successors(history, theirs[0])):
        return Edit.SKIPPED
    if history and mine[0] == history[-1]:
        return Edit.EXTRA
    if any(_runs_again(mine, history, width) for width in widths):
        return Edit.BLOCK
    if mine[0] in history and any(_runs_again(theirs, history, width) for width in widths):
        return Edit.BLOCK
    return None


def _runs_again(calls: Sequence[Call], before: Sequence[Call], width: int) -> bool:
    """Whether `calls` begin the very block of `width` different calls that has just run: a micro-batch.

    A single call proves that only where the block had run twice already.
    """
    block = tuple(before[-width:])
    if width < 2 or len(block) < width or len(set(block)) == 1:
        return False
    length = min(len(calls), width)
    return tuple(calls[:length]) == block[:length] and (length > 1 or _ran_twice(before, width))


def _ran_twice(before: Sequence[Call], width: int) -> bool:
    """Whether the last `width` calls are the same as the `width` before them."""
    return len(before) >= 2 * width and tuple(before[-2 * width : -width]) == tuple(before[-width:])


def _overlap(a: Sequence[Call], b: Sequence[Call]) -> int:
    """How many calls agree if all that both sides have agree, else 0."""
    common = min(len(a), len(b))
    return common if common and tuple(a[:common]) == tuple(b[:common]) else 0


def _calls(stream: Stream, start: int, stop: int) -> list[Call]:
    return list(zip(stream.tokens[start:stop].tolist(), stream.sites[start:stop].tolist(), strict=True))


def _successors(history: Sequence[Call], call: Call) -> tuple[Call, ...]:
    """What followed the last earlier occurrence of a call: earlier steps foretell the next call."""
    for i in range(len(history) - 2, -1, -1):
        if history[i] == call:
            return (history[i + 1],)
    return ()


def _concerns_p2p(
    evidence: FlightEvidence, odd: Stream, peers: Stream, index: int, edit: Edit | None
) -> bool:
    """Whether the calls that an edit touches include a send or receive."""
    touched = []
    if edit is not Edit.SKIPPED and len(odd) > index:
        touched.append(bool(evidence.tables[odd.rank].p2p[odd.at[index]]))
    if edit is not Edit.EXTRA and len(peers) > index:
        touched.append(bool(evidence.tables[peers.rank].p2p[peers.at[index]]))
    return any(touched)


def _by_site(evidence: FlightEvidence, mine: Call, theirs: Call) -> Kind:
    """One odd call at which its rank blocks, decided by who made it."""
    mismatch = _mismatch(evidence, mine, theirs)
    sites = evidence.interner.sites
    if mismatch and _same_function(sites[mine[1]], sites[theirs[1]]):
        return mismatch
    return Kind.COLLECTIVE_EXTRA


def _same_function(a: Site | None, b: Site | None) -> bool:
    """Whether two calls come from one function; where stacks are missing nothing speaks against it."""
    return a is None or b is None or (a.function, a.file) == (b.function, b.file)


def _mismatch(evidence: FlightEvidence, mine: Call, theirs: Call) -> Kind | None:
    """The one thing in which two signatures differ, or None if several do (or the groups)."""
    signatures = evidence.interner.signatures
    width = len(signatures)
    if mine[0] // width != theirs[0] // width:
        return None
    a, b = signatures[mine[0] % width], signatures[theirs[0] % width]
    differing = [
        kind
        for kind, differs in (
            (Kind.COLLECTIVE_TYPE_MISMATCH, a.op != b.op),
            (
                Kind.COLLECTIVE_SIZE_MISMATCH,
                (a.input_sizes, a.output_sizes) != (b.input_sizes, b.output_sizes),
            ),
            (
                Kind.COLLECTIVE_DTYPE_MISMATCH,
                set(a.input_dtypes + a.output_dtypes) != set(b.input_dtypes + b.output_dtypes),
            ),
        )
        if differs
    ]
    if differing[:1] == [Kind.COLLECTIVE_TYPE_MISMATCH] and _same_tensor(a, b):
        return Kind.COLLECTIVE_TYPE_MISMATCH
    return differing[0] if len(differing) == 1 else None


def _same_tensor(a: Signature, b: Signature) -> bool:
    """Different operations on the same input: output sizes follow from the operation."""
    return dataclasses.replace(a, op=b.op, output_sizes=b.output_sizes) == b
