"""Who diverged: the first departure of a role, ties on their own past, or all of a knot as suspects."""

from collections.abc import Iterator, Sequence

import numpy as np

from harness.diagnose.flight.classify import classify, classify_tie
from harness.diagnose.flight.describe import (
    SOURCE,
    call_of,
    chain_of,
    cite,
    cite_sides,
    confidence_from,
    frames_of,
    others_than,
    place,
    sentence,
    short_call,
)
from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.streams import Departure, StreamSet, sister_labels
from harness.diagnose.flight.waits import Knot, WaitGraph
from harness.model.diagnosis import RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

MIN_SISTERS = 2
"""Sisters that must agree before a rank is convicted on call sites, or beside missing dumps."""

OWN_PAST_CALLS = 3
"""Earlier calls at one site that a tie needs before a side is held against its own past (DIAGNOSIS).

Calls of one loop, with no other call between them, count once: its next round may have other sizes.
"""


def roles(evidence: FlightEvidence) -> list[tuple[int, ...]]:
    """Ranks that should issue the same calls: those at the same position of every group with p2p."""
    with_p2p = {int(g) for t in evidence.tables.values() for g in np.unique(t.group[t.p2p]).tolist()}
    by_role: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank in sorted(rank for rank, table in evidence.tables.items() if table.gaps is None):
        labels = sister_labels(evidence, rank)
        role = tuple(
            sorted(
                (label, evidence.groups[number].members.index(rank))
                for number, label in labels.items()
                if number in with_p2p and rank in evidence.groups[number].members
            )
        )
        by_role.setdefault(role, []).append(rank)
    return [tuple(ranks) for ranks in by_role.values()]


def diverged(evidence: FlightEvidence, graph: WaitGraph, knot: Knot) -> list[Finding]:
    """A mismatch or a circle of heads: where the streams parted, else all of the knot as suspects."""
    found = list(departures_inside(evidence, graph, knot.ranks))
    if any(finding.culprits for finding in found):
        return [finding for finding in found if finding.culprits]
    by_group = list(_departed_in_group(evidence, graph, knot))
    return by_group or found or [_undecided(evidence, graph, knot)]


def _departed_in_group(evidence: FlightEvidence, graph: WaitGraph, knot: Knot) -> Iterator[Finding]:
    """Roles too small to compare: the members of one group still issue its collectives in one order."""
    for number in sorted({head.group for head in knot.heads if not head.p2p}):
        members = [
            m
            for m in evidence.groups[number].members
            if m in evidence.tables and evidence.tables[m].gaps is None
        ]
        streams = StreamSet(evidence, members, only=number)
        for departure in streams.departures():
            inside = set(departure.ranks) <= set(knot.ranks)
            if inside and not departure.tie and len(departure.sisters) >= MIN_SISTERS:
                yield _departed(evidence, graph, streams, departure)
                return


def departures_inside(
    evidence: FlightEvidence, graph: WaitGraph, ranks: Sequence[int], sisters_needed: int = 1
) -> Iterator[Finding]:
    """The first departure of each role inside `ranks`."""
    inside = set(ranks)
    for role in roles(evidence):
        if inside.isdisjoint(role):
            continue
        streams = StreamSet(evidence, role)
        for departure in streams.departures():
            if departure.tie and not inside.isdisjoint((*departure.ranks, *departure.sisters)):
                yield _tie(evidence, graph, streams, departure)
                break
            if not inside.isdisjoint(departure.ranks) and len(departure.sisters) >= sisters_needed:
                yield _departed(evidence, graph, streams, departure)
                break


def _departed(
    evidence: FlightEvidence,
    graph: WaitGraph,
    streams: StreamSet,
    departure: Departure,
) -> Finding:
    odd = max((streams[rank] for rank in departure.ranks), key=len)
    peers = streams[departure.reference]
    kind = classify(evidence, odd, peers, departure.index)
    sisters = len(departure.sisters)
    where = place(evidence, graph, streams, departure)
    names = format_ranks(departure.ranks)
    rank_word = "rank" if len(departure.ranks) == 1 else "ranks"
    peers_text = f"ranks {format_ranks(departure.sisters)}"
    return Finding(
        source=SOURCE,
        kind=kind,
        confidence=confidence_from(sisters),
        summary=sentence(kind, f"{rank_word} {names}", peers_text, where),
        culprits=departure.ranks,
        victims=others_than(evidence, departure.ranks),
        where=where,
        evidence=cite_sides(evidence, streams, departure),
        chain=chain_of(evidence, graph, kind, departure.ranks, where),
        ruled_out=(
            RuledOut(
                Kind.FABRIC_STALLED,
                f"the members do not agree on {where.group} seq {where.seq}: nothing to carry yet",
            ),
        ),
    )


def _tie(
    evidence: FlightEvidence,
    graph: WaitGraph,
    streams: StreamSet,
    departure: Departure,
) -> Finding:
    odd, peers = streams[departure.ranks[0]], streams[departure.reference]
    kind = classify_tie(evidence, odd, peers, departure.index)
    where = place(evidence, graph, streams, departure)
    odd_side = _departs_from_its_past(streams, departure)
    if odd_side is not None:
        return _departed(evidence, graph, streams, odd_side)
    sides = f"ranks {format_ranks(departure.ranks)} and {format_ranks(departure.sisters)}"
    suspects = tuple(sorted((*departure.ranks, *departure.sisters)))
    return Finding(
        source=SOURCE,
        kind=kind,
        confidence=Confidence.POSSIBLE,
        summary=(f"{sides} disagree at {where.group} seq {where.seq} and no majority says who is odd"),
        suspects=suspects,
        victims=others_than(evidence, suspects),
        where=where,
        evidence=cite_sides(evidence, streams, departure),
        chain=chain_of(evidence, graph, kind, suspects, where),
    )


def _departs_from_its_past(streams: StreamSet, departure: Departure) -> Departure | None:
    """A tie is decided only where exactly one side departs from its own earlier calls at one site."""
    sides = (departure.ranks, departure.sisters)
    if any(len(streams[side[0]]) <= departure.index for side in sides):
        return None
    sites = {int(streams[side[0]].sites[departure.index]) for side in sides}
    if len(sites) > 1 or sites == {0}:
        return None
    (site,) = sites
    departs = []
    for side in sides:
        stream = streams[side[0]]
        here = stream.sites[: departure.index] == site
        earlier = stream.tokens[: departure.index][here]
        rounds = np.count_nonzero(here & ~np.append(False, here[:-1]))
        if rounds < OWN_PAST_CALLS or len(np.unique(earlier)) > 1:
            return None
        departs.append(bool(earlier[0] != stream.tokens[departure.index]))
    if departs == [True, False]:
        return Departure(*sides, departure.sisters[0], departure.index, departure.token_index)
    if departs == [False, True]:
        return Departure(sides[1], sides[0], departure.ranks[0], departure.index, departure.token_index)
    return None


def _undecided(evidence: FlightEvidence, graph: WaitGraph, knot: Knot) -> Finding:
    """Heads that wait in a circle and no departure that explains it: everybody in it is a suspect."""
    head = knot.heads[0]
    group = evidence.groups[head.group]
    p2p = any(h.p2p for h in knot.heads)
    kind = Kind.P2P_MISMATCH if p2p else Kind.COLLECTIVE_ORDER_MISMATCH
    if len({(h.group, h.seq) for h in knot.heads}) == 1:
        ops = {evidence.interner.signatures[h.signature].op for h in knot.heads}
        kind = Kind.COLLECTIVE_TYPE_MISMATCH if len(ops) > 1 else Kind.COLLECTIVE_SIZE_MISMATCH
    calls = {h.rank: call_of(evidence, h.rank, h.at) for h in knot.heads[:4]}
    wrapped = [len(evidence.tables[r]) for r in knot.ranks if evidence.tables[r].wrapped]
    short = f"the rings kept {min(wrapped, default=0)} calls, too few to see where the streams parted"
    advice = (f"{short}: set TORCH_FR_BUFFER_SIZE=20000",) if wrapped else ()
    return Finding(
        source=SOURCE,
        kind=kind,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"ranks {format_ranks(knot.ranks)} wait for one another and nothing says who is odd: "
            + ", ".join(f"rank {r} in {short_call(c)}" for r, c in calls.items())
        ),
        suspects=knot.ranks,
        victims=others_than(evidence, knot.ranks),
        where=Where(
            group=group.label,
            group_ranks=group.members,
            seq=head.seq,
            stuck_seq=head.seq,
            op=calls[head.rank].op,
            found=calls,
            frames=frames_of(evidence, [(h.rank, h.at) for h in knot.heads[:4]]),
        ),
        evidence=tuple(
            cite(evidence, h.rank, h.at, f"stands at {short_call(calls[h.rank])}") for h in knot.heads[:4]
        ),
        chain=advice,
    )


def silent_departure(evidence: FlightEvidence, graph: WaitGraph, rank: int) -> Finding | None:
    """A rank whose last calls all paired, but with its sisters' next ones: it left one out on the way.

    Call sites part at the call that it skipped and agree again, shifted, to the rank's end.
    """
    role = next((role for role in roles(evidence) if rank in role), ())
    streams = StreamSet(evidence, role)
    sisters = tuple(r for r in streams.streams if r != rank)
    if rank not in streams.streams or len(sisters) < MIN_SISTERS:
        return None
    odd = streams[rank]
    for sister in sisters:
        peers = streams[sister]
        common = min(len(odd), len(peers))
        apart = np.flatnonzero(odd.sites[:common] != peers.sites[:common])
        if not len(apart) or not np.array_equal(odd.tokens[:common], peers.tokens[:common]):
            return None
        index = int(apart[0])
        kind = classify(evidence, odd, peers, index)
        if kind not in (Kind.COLLECTIVE_SKIPPED, Kind.MICROBATCH_MISMATCH):
            return None
    departure = Departure((rank,), sisters, sisters[0], index, index)
    return _departed(evidence, graph, streams, departure)
