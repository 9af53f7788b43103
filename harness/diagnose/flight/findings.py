"""Knots of the wait-for graph to findings: who diverged, who stalled, or a fabric that does not move."""

from collections.abc import Iterator, Sequence

import numpy as np

from harness.diagnose.flight.age import is_hang
from harness.diagnose.flight.classify import classify, classify_tie
from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.streams import Departure, StreamSet
from harness.diagnose.flight.table import Signature, State
from harness.diagnose.flight.waits import Head, Knot, WaitGraph
from harness.model.diagnosis import CallSignature, Citation, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

SOURCE = "flight_recorder"
OWN_PAST_CALLS = 3
"""Earlier calls at one site that a tie needs before a side is held against its own past (DIAGNOSIS)."""


def find_all(evidence: FlightEvidence, graph: WaitGraph, hang: bool | None = None) -> tuple[Finding, ...]:
    """All findings, convictions first.

    `hang` is what is known from elsewhere of whether the job stood still; None leaves it to the clocks
    in the dumps.
    """
    found: list[Finding] = []
    idle = [knot for knot in graph.knots if knot.idle]
    for knot in graph.knots:
        if knot.idle:
            continue
        if any(graph.waits_for.get(rank) for rank in knot.ranks):
            found.extend(_diverged(evidence, graph, knot))
        else:
            found.extend(_joined_and_stuck(evidence, graph, knot))
    if idle:
        found.append(_idle(evidence, graph, idle, hang))
    if not graph.heads:
        found.extend(_departures(evidence, graph, tuple(evidence.tables)))
    return tuple(sorted(found, key=lambda f: (not f.culprits, not f.suspects, f.kind is Kind.INCONCLUSIVE)))


def short_call(call: Signature | CallSignature) -> str:
    """``all_reduce [1048576]``, with the dtype where it is not the usual float."""
    sizes = "".join(str(list(shape)) for shape in call.input_sizes)
    dtypes = [d for d in call.input_dtypes if d != "Float"]
    return " ".join([call.op, *([sizes] if sizes else []), *dtypes[:1]])


def roles(evidence: FlightEvidence) -> list[tuple[int, ...]]:
    """Ranks that should issue the same calls: those at the same position of every group with p2p."""
    with_p2p = sorted({int(g) for table in evidence.tables.values() for g in table.group[table.p2p].tolist()})
    by_role: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank in sorted(evidence.tables):
        role = tuple(
            (group.label, group.members.index(rank))
            for group in (evidence.groups[g] for g in with_p2p)
            if rank in group.members
        )
        by_role.setdefault(role, []).append(rank)
    return [tuple(ranks) for ranks in by_role.values()]


def _diverged(evidence: FlightEvidence, graph: WaitGraph, knot: Knot) -> list[Finding]:
    """A mismatch or a circle of heads: where the streams parted, else all of the knot as suspects."""
    found = list(_departures(evidence, graph, knot.ranks))
    if any(finding.culprits for finding in found):
        return [finding for finding in found if finding.culprits]
    return found or [_undecided(evidence, graph, knot)]


def _departures(
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
    odd, peers = streams[departure.ranks[0]], streams[departure.reference]
    kind = classify(evidence, odd, peers, departure.index)
    sisters = len(departure.sisters)
    where = _where(evidence, graph, streams, departure)
    names = format_ranks(departure.ranks)
    rank_word = "rank" if len(departure.ranks) == 1 else "ranks"
    peers_text = f"ranks {format_ranks(departure.sisters)}"
    return Finding(
        source=SOURCE,
        kind=kind,
        confidence=_confidence(sisters),
        summary=_sentence(kind, f"{rank_word} {names}", peers_text, where),
        culprits=departure.ranks,
        victims=_others(evidence, departure.ranks),
        where=where,
        evidence=_cite_both(evidence, streams, departure),
        chain=_chain(evidence, graph, kind, f"{rank_word} {names}", where),
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
    where = _where(evidence, graph, streams, departure)
    odd_side = _departs_from_its_past(evidence, streams, departure)
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
        victims=_others(evidence, suspects),
        where=where,
        evidence=_cite_both(evidence, streams, departure),
        chain=_chain(evidence, graph, kind, sides, where),
    )


def _departs_from_its_past(
    evidence: FlightEvidence, streams: StreamSet, departure: Departure
) -> Departure | None:
    """A tie is decided only where exactly one side departs from its own earlier calls at one site."""
    sides = (departure.ranks, departure.sisters)
    if any(len(streams[side[0]]) <= departure.index for side in sides):
        return None
    sites = {int(streams[side[0]].sites[departure.index]) for side in sides}
    if len(sites) > 1 or sites == {0}:
        return None
    departs = []
    for side in sides:
        stream = streams[side[0]]
        earlier = stream.tokens[: departure.index][stream.sites[: departure.index] == sites.pop()]
        sites = {int(stream.sites[departure.index])}
        if len(earlier) < OWN_PAST_CALLS or len(np.unique(earlier)) > 1:
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
        kind = Kind.COLLECTIVE_TYPE_MISMATCH
    calls = {h.rank: _call(evidence, h.rank, h.at) for h in knot.heads[:4]}
    return Finding(
        source=SOURCE,
        kind=kind,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"ranks {format_ranks(knot.ranks)} wait for one another and nothing says who is odd: "
            + ", ".join(f"rank {r} in {short_call(c)}" for r, c in calls.items())
        ),
        suspects=knot.ranks,
        victims=_others(evidence, knot.ranks),
        where=Where(
            group=group.label,
            group_ranks=group.members,
            seq=head.seq,
            stuck_seq=head.seq,
            op=calls[head.rank].op,
            found=calls,
            frames=_frames(evidence, [(h.rank, h.at) for h in knot.heads[:4]]),
        ),
        evidence=tuple(
            _cite(evidence, h.rank, h.at, f"stands at {short_call(calls[h.rank])}") for h in knot.heads[:4]
        ),
    )


def _idle(evidence: FlightEvidence, graph: WaitGraph, knots: Sequence[Knot], hang: bool | None) -> Finding:
    """Ranks with nothing pending for whom others wait: stalled or gone, or just computing."""
    ranks = tuple(sorted(rank for knot in knots for rank in knot.ranks))
    waiting = sorted(
        (r for r, targets in graph.waits_for.items() if not set(ranks).isdisjoint(targets)),
        key=lambda r: (-len(evidence.groups[graph.heads[r].group].members), r),
    )
    head = graph.heads[waiting[0]]
    stands = hang if hang is not None else is_hang(evidence, [graph.heads[r] for r in waiting])
    group = evidence.groups[head.group]
    op = evidence.interner.signatures[head.signature].op
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"
    where = Where(
        group=group.label,
        group_ranks=group.members,
        group_rank=group.members.index(ranks[0]) if ranks[0] in group.members else None,
        seq=head.seq,
        stuck_seq=head.seq,
        op=op,
        expected=_call(evidence, head.rank, head.at),
        frames=_frames(evidence, ((head.rank, head.at),)),
    )
    if stands is False:
        return Finding(
            source=SOURCE,
            kind=Kind.HEALTHY,
            confidence=Confidence.LIKELY,
            summary=(
                f"a snapshot of a job that runs: {who} just computes, "
                f"ranks {format_ranks(waiting)} have not waited long in {op}"
            ),
            where=where,
            evidence=(_cite(evidence, head.rank, head.at, f"waits in {op}, not for long"),),
        )
    convicted = len(ranks) == 1 and stands is True
    return Finding(
        source=SOURCE,
        kind=Kind.RANK_STALLED,
        confidence=_confidence(len(waiting)) if convicted else Confidence.POSSIBLE,
        summary=(
            f"{who} never issued {op}, {group.label} seq {head.seq}, "
            f"in which ranks {format_ranks(waiting)} wait"
        ),
        culprits=ranks if convicted else (),
        suspects=() if convicted else ranks,
        victims=_others(evidence, ranks),
        where=where,
        evidence=(
            *(
                Citation(
                    SOURCE,
                    f"rank {rank}'s last call in {group.label} is seq "
                    f"{evidence.newest(rank, head.group)}; nothing is pending",
                    evidence.tables[rank].file,
                    rank=rank,
                )
                for rank in ranks[:3]
            ),
            _cite(evidence, head.rank, head.at, f"waits in {op}, seq {head.seq}"),
        ),
        chain=(f"{who} does not arrive", *_consequences(evidence, graph, ranks)),
    )


def _joined_and_stuck(evidence: FlightEvidence, graph: WaitGraph, knot: Knot) -> Iterator[Finding]:
    head = knot.heads[0]
    group = evidence.groups[head.group]
    where = Where(
        group=group.label,
        group_ranks=group.members,
        seq=head.seq,
        stuck_seq=head.seq,
        op=evidence.interner.signatures[head.signature].op,
        expected=_call(evidence, head.rank, head.at),
        frames=_frames(evidence, ((head.rank, head.at),)),
    )
    absent = graph.missing.get(head.rank, ())
    if absent:
        sole = len(absent) == 1
        departed = list(_departures(evidence, graph, knot.ranks, sisters_needed=2))
        if any(finding.culprits for finding in departed):
            yield from (finding for finding in departed if finding.culprits)
            return
        yield Finding(
            source=SOURCE,
            kind=Kind.INCONCLUSIVE,
            confidence=Confidence.POSSIBLE,
            summary=(
                f"everybody waits in {where.op}, {group.label} seq {head.seq}, and "
                f"rank {format_ranks(absent)} left no dump"
            ),
            suspects=absent,
            victims=_others(evidence, absent),
            where=where,
            evidence=(_cite(evidence, head.rank, head.at, "waits for a rank without a dump"),),
            chain=(f"rank {format_ranks(absent)} may not have arrived",) if sole else (),
        )
        return
    if head.p2p:
        yield _stuck_pair(evidence, graph, knot, where)
        return
    members = [m for m in group.members if m in evidence.tables]
    done = [m for m in members if _state(evidence, m, head) is State.DONE]
    if done:
        yield _holders(evidence, members, done, head, where)
        return
    started = [m for m in members if _state(evidence, m, head) is State.STARTED]
    idle = [m for m in members if _state(evidence, m, head) is State.SCHEDULED]
    if started and len(idle) == 1:
        yield Finding(
            source=SOURCE,
            kind=Kind.GPU_STALLED,
            confidence=_confidence(len(started)),
            summary=(f"rank {idle[0]}'s {where.op} is enqueued but does not start; its peers' have"),
            culprits=(idle[0],),
            victims=_others(evidence, (idle[0],)),
            where=where,
            evidence=(_cite(evidence, idle[0], head.at, "scheduled, not started"),),
        )
        return
    yield Finding(
        source=SOURCE,
        kind=Kind.FABRIC_STALLED,
        confidence=Confidence.LIKELY if started else Confidence.POSSIBLE,
        summary=(
            f"all of {group.label} joined {where.op}, seq {head.seq}, with equal arguments, "
            "and it does not complete"
        ),
        victims=tuple(sorted(evidence.tables)),
        where=where,
        evidence=tuple(_cite(evidence, m, head.at, "joined, not complete") for m in members[:3]),
    )


def _stuck_pair(evidence: FlightEvidence, graph: WaitGraph, knot: Knot, where: Where) -> Finding:
    """A send and its receive were both issued, agree, and do not complete."""
    head = knot.heads[0]
    peer = graph.pairs.peer(head.rank, head.at)
    both = tuple(sorted({head.rank, *((peer,) if peer is not None else ())}))
    return Finding(
        source=SOURCE,
        kind=Kind.FABRIC_STALLED,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"the {where.op} between ranks {format_ranks(both)} was issued on both sides, agrees, and "
            "does not complete"
        ),
        victims=tuple(sorted(evidence.tables)),
        where=where,
        evidence=(_cite(evidence, head.rank, head.at, "issued on both sides, not complete"),),
    )


def _holders(
    evidence: FlightEvidence, members: list[int], done: list[int], head: Head, where: Where
) -> Finding:
    """Some members completed a call that others still hold: the holders are suspects."""
    holders = tuple(sorted(set(members) - set(done)))
    gloo = evidence.tables[head.rank].backend == "gloo"
    return Finding(
        source=SOURCE,
        # gloo has no kernels: there only a lost message or a late book-keeper looks like this.
        kind=Kind.INCONCLUSIVE if gloo else Kind.GPU_STALLED,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"ranks {format_ranks(done)} completed {where.op}, {where.group} seq {where.seq}, "
            f"that rank {format_ranks(holders)} still holds"
        ),
        suspects=holders,
        victims=_others(evidence, holders),
        where=where,
        evidence=(
            _cite(evidence, head.rank, head.at, "not complete"),
            Citation(SOURCE, f"rank {done[0]}: complete", evidence.tables[done[0]].file, rank=done[0]),
        ),
    )


def _state(evidence: FlightEvidence, rank: int, head: Head) -> State | None:
    at = evidence.find(rank, head.group, head.seq)
    return None if at is None else State(int(evidence.tables[rank].state[at]))


def _where(
    evidence: FlightEvidence,
    graph: WaitGraph,
    streams: StreamSet,
    departure: Departure,
) -> Where:
    peers = streams[departure.reference]
    at = int(peers.at[min(departure.index, len(peers) - 1)])
    table = evidence.tables[peers.rank]
    group = evidence.groups[int(table.group[at])]
    odd_calls = {
        rank: int(streams[rank].at[departure.index])
        for rank in departure.ranks
        if len(streams[rank]) > departure.index
    }
    stuck = [graph.heads[r] for r in departure.sisters if r in graph.heads]
    first_odd = departure.ranks[0]
    return Where(
        group=group.label,
        group_ranks=group.members,
        group_rank=group.members.index(first_odd) if first_odd in group.members else None,
        seq=int(table.seq[at]),
        stuck_seq=max((head.seq for head in stuck), default=None),
        op=evidence.signature(peers.rank, at).op,
        expected=_call(evidence, peers.rank, at),
        found={rank: _call(evidence, rank, odd) for rank, odd in odd_calls.items()},
        frames=_frames(evidence, (*odd_calls.items(), (peers.rank, at))),
    )


def _frames(evidence: FlightEvidence, calls: Sequence[tuple[int, int]]) -> dict[int, tuple[str, ...]]:
    """Python frames of calls, innermost first: from the call's own site out to the script."""
    frames: dict[int, tuple[str, ...]] = {}
    for rank, at in calls:
        stack, site = evidence.stack(rank, at), evidence.site(rank, at)
        own = stack[stack.index(site) :] if site in stack else stack
        script = next((i for i, f in enumerate(own) if f.function == "<module>"), len(own))
        frames[rank] = tuple(str(frame) for frame in own[: script + 1])
    return frames


def _call(evidence: FlightEvidence, rank: int, at: int) -> CallSignature:
    s = evidence.signature(rank, at)
    site = evidence.site(rank, at)
    return CallSignature(
        op=s.op,
        input_sizes=s.input_sizes,
        output_sizes=s.output_sizes,
        input_dtypes=s.input_dtypes,
        output_dtypes=s.output_dtypes,
        site=str(site) if site else None,
        seq=int(evidence.tables[rank].seq[at]),
    )


def _cite(evidence: FlightEvidence, rank: int, at: int, says: str) -> Citation:
    table = evidence.tables[rank]
    record = int(table.record[at]) if at < len(table) else None
    return Citation(SOURCE, f"rank {rank}: {says}", table.file, record=record, rank=rank)


def _cite_both(evidence: FlightEvidence, streams: StreamSet, departure: Departure) -> tuple[Citation, ...]:
    cited: list[Citation] = []
    for rank in (*departure.ranks, *departure.sisters[:3]):
        stream = streams[rank]
        if len(stream) > departure.index:
            at = int(stream.at[departure.index])
            site = evidence.site(rank, at)
            made = f" by {site}" if site else ""
            says = f"seq {int(evidence.tables[rank].seq[at])} is {short_call(evidence.signature(rank, at))}"
            cited.append(_cite(evidence, rank, at, says + made))
    return tuple(cited)


def _sentence(kind: Kind, who: str, peers: str, where: Where) -> str:
    """One sentence a tired person understands."""
    found = next(iter(where.found.values()), None)
    expected = where.expected
    place = f"{where.group} seq {where.seq}"
    theirs = short_call(expected) if expected else "nothing"
    mine = short_call(found) if found else "nothing"
    by = f" in {found.site}" if found and found.site else ""
    if kind is Kind.COLLECTIVE_SKIPPED:
        at = f" ({expected.site})" if expected and expected.site else ""
        return f"{who} never issued {place}, {theirs}{at}, that {peers} issued, and went on"
    if kind is Kind.COLLECTIVE_EXTRA:
        return f"{who} issued {mine}{by} at {place}, which nobody else issues; {peers} are at {theirs}"
    if kind is Kind.MICROBATCH_MISMATCH:
        return f"{who} ran another number of micro-batches than {peers}, from {place} on"
    return f"{who} issued {mine}{by} at {place} where {peers} issued {theirs}"


def _chain(evidence: FlightEvidence, graph: WaitGraph, kind: Kind, who: str, where: Where) -> tuple[str, ...]:
    links = [f"{who}: {kind.value.replace('_', ' ')} at {where.group} seq {where.seq}"]
    if where.stuck_seq is not None and where.stuck_seq != where.seq:
        links.append(f"-> the next calls pair silently; the break shows at seq {where.stuck_seq}")
    if graph.heads:
        stuck = format_ranks(graph.heads)
        seq = where.stuck_seq if where.stuck_seq is not None else where.seq
        links.append(f"-> ranks {stuck} stand at {where.group} seq {seq}")
    return tuple(links)


def _consequences(evidence: FlightEvidence, graph: WaitGraph, roots: tuple[int, ...]) -> Iterator[str]:
    """Breadth first from the roots: which group's members wait because of whom."""
    reached = set(roots)
    while True:
        layer: dict[tuple[int, int], list[int]] = {}
        for rank, targets in graph.waits_for.items():
            if rank not in reached and not reached.isdisjoint(targets):
                head = graph.heads[rank]
                layer.setdefault((head.group, head.seq), []).append(rank)
        if not layer:
            return
        for (group, seq), ranks in sorted(layer.items()):
            label = evidence.groups[group].label
            yield f"-> ranks {format_ranks(ranks)} wait in {label} seq {seq}"
            reached.update(ranks)


def _others(evidence: FlightEvidence, ranks: Sequence[int]) -> tuple[int, ...]:
    return tuple(r for r in range(evidence.world_size) if r not in ranks)


def _confidence(agreeing: int) -> Confidence:
    """Source: DIAGNOSIS, Flight Recorder rules: certain from three agreeing sisters, likely from two."""
    if agreeing >= 3:
        return Confidence.CERTAIN
    return Confidence.LIKELY if agreeing == 2 else Confidence.POSSIBLE
