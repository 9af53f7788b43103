"""Where the streams of like ranks parted: each rank's recorded order against the others'."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.table import Ints


@dataclass(frozen=True)
class Stream:
    """One rank's comparable calls: `tokens` number (group label, signature), `at` are table positions."""

    rank: int
    tokens: Ints
    sites: Ints
    at: Ints

    def __len__(self) -> int:
        return len(self.tokens)

    def call(self, i: int) -> tuple[int, int]:
        """Token and site of one call."""
        return int(self.tokens[i]), int(self.sites[i])


@dataclass(frozen=True)
class Departure:
    """Ranks that left the common order together.

    `index` is where call sites part, `token_index` where operations part (equal unless a call paired
    silently). `reference` is a rank that stayed; `sisters` all that stayed and were seen there. A tie
    has no majority: then `ranks` and `sisters` are its two sides.
    """

    ranks: tuple[int, ...]
    sisters: tuple[int, ...]
    reference: int
    index: int
    token_index: int
    tie: bool = False


def build_streams(evidence: FlightEvidence, ranks: Sequence[int]) -> dict[int, Stream]:
    """Streams of `ranks`, cut to start at a collective that all of them still hold."""
    descriptions: dict[str, int] = {}
    of_group = np.array(
        [descriptions.setdefault(g.label, len(descriptions)) for g in evidence.groups] or [0],
        dtype=np.int64,
    )
    streams: dict[int, Stream] = {}
    starts = _common_start(evidence, ranks, of_group)
    width = len(evidence.interner.signatures)
    for rank in ranks:
        table = evidence.tables[rank]
        start = starts[rank]
        tokens = of_group[table.group[start:]] * width + table.signature[start:]
        streams[rank] = Stream(rank, tokens, table.site[start:], np.arange(start, len(table), dtype=np.int64))
    return streams


def find_departures(streams: dict[int, Stream]) -> list[Departure]:
    """All departures from the majority's order, earliest first; stops at a tie."""
    active = sorted(streams)
    found: list[Departure] = []
    while len(active) > 1:
        first = _first_difference([streams[r] for r in active])
        if first is None:
            break
        seen = [r for r in active if len(streams[r]) > first]
        votes = Counter(int(streams[r].tokens[first]) for r in seen)
        (token, count), *_ = votes.most_common(1)
        if count * 2 <= len(seen):
            found.extend(_tie(streams, seen, first))
            break
        stayed = tuple(r for r in seen if streams[r].tokens[first] == token)
        for other in sorted(t for t in votes if t != token):
            left = tuple(r for r in seen if streams[r].tokens[first] == other)
            found.append(_departure(streams, left, stayed, first))
        active = [r for r in active if r not in seen or r in stayed]
    return found


def _tie(streams: dict[int, Stream], seen: list[int], first: int) -> list[Departure]:
    reference = seen[0]
    sides: dict[int, list[int]] = {}
    for rank in seen:
        sides.setdefault(int(streams[rank].tokens[first]), []).append(rank)
    stayed = tuple(sides.pop(int(streams[reference].tokens[first])))
    left = tuple(sorted(rank for side in sides.values() for rank in side))
    departure = _departure(streams, left, stayed, first)
    return [Departure(departure.ranks, stayed, reference, departure.index, departure.token_index, tie=True)]


def _departure(
    streams: dict[int, Stream], left: tuple[int, ...], stayed: tuple[int, ...], first: int
) -> Departure:
    """Walk back over calls whose operations agree but whose call sites do not: they paired silently."""
    reference, odd = streams[stayed[0]], streams[left[0]]
    index = first
    while index and reference.sites[index - 1] != odd.sites[index - 1]:
        index -= 1
    return Departure(left, stayed, stayed[0], index, first)


def _first_difference(streams: Sequence[Stream]) -> int | None:
    """The smallest index at which two streams, as far as both go, differ."""
    longest = max(streams, key=len)
    firsts = []
    for stream in streams:
        common = len(stream)
        unequal = np.flatnonzero(stream.tokens != longest.tokens[:common])
        if len(unequal):
            firsts.append(int(unequal[0]))
    return min(firsts, default=None)


def _common_start(evidence: FlightEvidence, ranks: Sequence[int], of_group: Ints) -> dict[int, int]:
    """For each rank the position of a collective that all hold, by group description and sequence."""
    firsts: list[dict[int, tuple[int, int]]] = []
    for rank in ranks:
        table = evidence.tables[rank]
        held: dict[int, tuple[int, int]] = {}
        kinds = of_group[table.group]
        for kind in np.unique(kinds).tolist():
            mine = np.flatnonzero((kinds == kind) & ~table.p2p)
            if len(mine):
                held[kind] = (int(table.seq[mine[0]]), int(mine[0]))
        firsts.append(held)
    shared = set.intersection(*(set(held) for held in firsts)) if firsts else set()
    best: dict[int, int] | None = None
    for kind in sorted(shared):
        seq = max(held[kind][0] for held in firsts)
        starts: dict[int, int] = {}
        for rank in ranks:
            table = evidence.tables[rank]
            mine = np.flatnonzero((of_group[table.group] == kind) & ~table.p2p & (table.seq >= seq))
            if not len(mine):
                break
            starts[rank] = int(mine[0])
        if len(starts) == len(ranks) and (best is None or sum(starts.values()) < sum(best.values())):
            best = starts
    return best or dict.fromkeys(ranks, 0)
