"""What kind of break a departure is: the edit that turns the peers' order into the odd rank's."""

import dataclasses
from collections.abc import Sequence
from enum import Enum

from harness.diagnose.flight.streams import Stream
from harness.diagnose.flight.table import Interner, Signature, Site
from harness.model.kinds import Kind

Call = tuple[int, int]

LOOKAHEAD = 64
"""Calls after a departure that are compared; more change nothing and cost time."""


class Edit(Enum):
    """How an odd order differs from the peers' order."""

    SUBSTITUTED = 0
    SKIPPED = 1
    EXTRA = 2
    BLOCK = 3


_KINDS = {
    Edit.SKIPPED: Kind.COLLECTIVE_SKIPPED,
    Edit.EXTRA: Kind.COLLECTIVE_EXTRA,
    Edit.BLOCK: Kind.MICROBATCH_MISMATCH,
}


def classify(odd: Stream, peers: Stream, index: int, interner: Interner) -> Kind:
    """The kind of break at `index`, seen from `odd`, with `peers` the order that the others kept.

    First edits that later calls confirm; then the peers' next call or a repeat; then the call site.
    """
    mine = _calls(odd, index, index + LOOKAHEAD)
    theirs = _calls(peers, index, index + LOOKAHEAD)
    edit = _confirmed_edit(mine, theirs, _calls(peers, max(0, index - LOOKAHEAD), index))
    if edit is Edit.SUBSTITUTED:
        return _mismatch(mine[0], theirs[0], interner) or Kind.COLLECTIVE_TYPE_MISMATCH
    if edit is not None:
        return _KINDS[edit]
    if not theirs or not mine:
        return Kind.COLLECTIVE_EXTRA if mine else Kind.COLLECTIVE_SKIPPED
    history = _calls(peers, 0, index)
    if mine[0] in (*theirs[1:2], *_successors(history, theirs[0])):
        return Kind.COLLECTIVE_SKIPPED
    if history and mine[0] == history[-1]:
        return Kind.COLLECTIVE_EXTRA
    return _by_site(mine[0], theirs[0], interner)


def classify_tie(one: Stream, other: Stream, index: int, interner: Interner) -> Kind:
    """The kind where no majority says which side is odd: only what holds seen from both sides."""
    if min(len(one), len(other)) <= index:
        return Kind.COLLECTIVE_TYPE_MISMATCH
    kind = _by_site(one.call(index), other.call(index), interner)
    return Kind.COLLECTIVE_TYPE_MISMATCH if kind is Kind.COLLECTIVE_EXTRA else kind


def _confirmed_edit(mine: Sequence[Call], theirs: Sequence[Call], before: Sequence[Call]) -> Edit | None:
    """The edit after which most calls agree again, or None where nothing later confirms any.

    At equal length a substitution wins over a shift, and a short shift over a long one.
    """
    found = [(_overlap(mine[1:], theirs[1:]), 0, Edit.SUBSTITUTED)]
    for width in range(1, len(theirs)):
        edit = Edit.SKIPPED if width == 1 or not _repeats(theirs[:width], before) else Edit.BLOCK
        found.append((_overlap(mine, theirs[width:]), -width, edit))
    for width in range(1, len(mine)):
        edit = Edit.EXTRA if width == 1 or not _repeats(mine[:width], before) else Edit.BLOCK
        found.append((_overlap(mine[width:], theirs), -width, edit))
    length, _, edit = max(found, key=lambda candidate: candidate[:2])
    return edit if length else None


def _repeats(block: Sequence[Call], before: Sequence[Call]) -> bool:
    """Whether the same calls ran just before: a block that repeats is a micro-batch."""
    return tuple(before[-len(block) :]) == tuple(block)


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


def _by_site(mine: Call, theirs: Call, interner: Interner) -> Kind:
    """One odd call at which its rank blocks, decided by who made it."""
    mismatch = _mismatch(mine, theirs, interner)
    if mismatch and _same_function(interner.sites[mine[1]], interner.sites[theirs[1]]):
        return mismatch
    return Kind.COLLECTIVE_EXTRA


def _same_function(a: Site | None, b: Site | None) -> bool:
    """Whether two calls come from one function; where stacks are missing nothing speaks against it."""
    return a is None or b is None or (a.function, a.file) == (b.function, b.file)


def _mismatch(mine: Call, theirs: Call, interner: Interner) -> Kind | None:
    """The one thing in which two signatures differ, or None if several do (or the groups)."""
    width = len(interner.signatures)
    if mine[0] // width != theirs[0] // width:
        return None
    a, b = interner.signatures[mine[0] % width], interner.signatures[theirs[0] % width]
    differing = [
        kind
        for kind, part in (
            (Kind.COLLECTIVE_TYPE_MISMATCH, _op),
            (Kind.COLLECTIVE_SIZE_MISMATCH, _shape),
            (Kind.COLLECTIVE_DTYPE_MISMATCH, _dtypes),
        )
        if part(a) != part(b)
    ]
    if differing[:1] == [Kind.COLLECTIVE_TYPE_MISMATCH] and _same_tensor(a, b):
        return Kind.COLLECTIVE_TYPE_MISMATCH
    return differing[0] if len(differing) == 1 else None


def _op(s: Signature) -> object:
    return s.op


def _shape(s: Signature) -> object:
    return s.input_sizes, s.output_sizes


def _dtypes(s: Signature) -> object:
    return s.input_dtypes, s.output_dtypes


def _same_tensor(a: Signature, b: Signature) -> bool:
    """Different operations on the same input: output sizes follow from the operation."""
    return dataclasses.replace(a, op=b.op, output_sizes=b.output_sizes) == b
