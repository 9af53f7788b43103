"""The part of a collective in which a rank waits for a late peer, apart from the transfer."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from harness.diagnose.traces.intervals import Cover, cover
from harness.diagnose.traces.recording import CollectiveKey
from harness.diagnose.traces.spans import Columns

Identity = tuple[CollectiveKey, int]
"""A key, and where sizes are not recorded the collective's place among those of its name in the step."""


@dataclass(frozen=True)
class Collectives:
    """The collectives of one rank's kept steps. `identities` has one entry a collective.

    None where nothing says which other collectives it may be compared with.
    """

    spans: Columns
    identities: tuple[Identity | None, ...]

    @property
    def nelems(self) -> int:
        """Elements sent by all of them together, as far as recorded."""
        return sum(found[0].nelems or 0 for found in self.identities if found)


def identify(spans: Columns, keys: tuple[CollectiveKey, ...], step_of: Columns) -> Collectives:
    """Name each collective that begins in a step of `step_of`; the others are left out."""
    spans = spans.where(np.argsort(spans.begin, kind="stable"))
    step = np.searchsorted(step_of.begin, spans.begin, side="right") - 1
    inside = (step >= 0) & (spans.begin < step_of.end[np.maximum(step, 0)])
    spans, step = spans.where(inside), step[inside]
    seen: Counter[tuple[int, int]] = Counter()
    places = []
    for label, at in zip(spans.label.tolist(), step.tolist(), strict=True):
        places.append(seen[label, at])
        seen[label, at] += 1
    # Steps that make a call a different number of times have no common places.
    counts = {label: {seen[label, at] for at in range(len(step_of))} for label, _ in seen}
    identities: list[Identity | None] = []
    for label, place in zip(spans.label.tolist(), places, strict=True):
        key = keys[label]
        if key.nelems is not None:
            identities.append((key, 0))
        else:
            identities.append((key, place) if len(counts[label]) == 1 else None)
    return Collectives(spans, tuple(identities))


def shortest(sides: Iterable[Collectives]) -> dict[Identity, int]:
    """The shortest duration of each identity over ranks and steps, ns: nobody was late for that one."""
    least: dict[Identity, int] = {}
    for collectives in sides:
        durations = (collectives.spans.end - collectives.spans.begin).tolist()
        for identity, duration in zip(collectives.identities, durations, strict=True):
            if identity is not None:
                least[identity] = min(duration, least.get(identity, duration))
    return least


@dataclass(frozen=True)
class Communication:
    """When a rank transferred, when it sent or received, when it waited for a late peer."""

    transfer: Cover
    p2p: Cover
    waiting: Cover


def split(
    collectives: Collectives, keys: tuple[CollectiveKey, ...], least: Mapping[Identity, int]
) -> Communication:
    """Cut each collective in two: who is early waits first, and then everybody transfers."""
    spans = collectives.spans
    p2p = np.array([keys[label].p2p for label in spans.label.tolist()], np.bool_)
    own = (spans.end - spans.begin).tolist()
    transfer = np.array(
        [least.get(who, d) if who else d for who, d in zip(collectives.identities, own, strict=True)],
        np.int64,
    )
    meets = spans.end - transfer
    return Communication(
        transfer=cover(meets[~p2p], spans.end[~p2p]),
        p2p=cover(spans.begin[p2p], spans.end[p2p]),
        waiting=cover(spans.begin[~p2p], meets[~p2p]),
    )
