"""Knots of the wait-for graph to findings: who diverged, who stalled, or a fabric that does not move."""

from collections.abc import Iterator, Sequence

from harness.diagnose.flight.classify import classify, classify_tie
from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.streams import Departure, Stream, build_streams, find_departures
from harness.diagnose.flight.table import Signature, State
from harness.diagnose.flight.waits import Head, Knot, WaitGraph
from harness.model.diagnosis import CallSignature, Citation, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

SOURCE = "flight_recorder"


def find_all(evidence: FlightEvidence, graph: WaitGraph) -> list[Finding]:
    """All findings, the one that explains the block first."""
    found: list[Finding] = []
    for knot in graph.knots:
        if knot.idle:
            found.append(_idle(evidence, graph, knot))
        elif all(not graph.waits_for.get(rank) for rank in knot.ranks):
            found.extend(_joined_and_stuck(evidence, graph, knot))
        else:
            found.extend(_diverged(evidence, graph, knot.ranks))
    if not graph.heads:
        found.extend(_diverged(evidence, graph, tuple(evidence.tables)))
    return found


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


def _diverged(evidence: FlightEvidence, graph: WaitGraph, ranks: tuple[int, ...]) -> Iterator[Finding]:
    inside = set(ranks)
    for role in roles(evidence):
        if inside.isdisjoint(role):
            continue
        streams = build_streams(evidence, role)
        for departure in find_departures(streams):
            if departure.tie and not inside.isdisjoint((*departure.ranks, *departure.sisters)):
                yield _tie(evidence, graph, streams, departure)
                break
            if not inside.isdisjoint(departure.ranks):
                yield _departed(evidence, graph, streams, departure)
                break


def _departed(
    evidence: FlightEvidence,
    graph: WaitGraph,
    streams: dict[int, Stream],
    departure: Departure,
) -> Finding:
    odd, peers = streams[departure.ranks[0]], streams[departure.reference]
    kind = classify(odd, peers, departure.index, evidence.interner)
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
    streams: dict[int, Stream],
    departure: Departure,
) -> Finding:
    odd, peers = streams[departure.ranks[0]], streams[departure.reference]
    kind = classify_tie(odd, peers, departure.index, evidence.interner)
    where = _where(evidence, graph, streams, departure)
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


def _idle(evidence: FlightEvidence, graph: WaitGraph, knot: Knot) -> Finding:
    (rank,) = knot.ranks
    waiting = sorted(r for r, targets in graph.waits_for.items() if rank in targets)
    head = graph.heads[waiting[0]]
    group = evidence.groups[head.group]
    newest = evidence.newest(rank, head.group)
    op = evidence.interner.signatures[head.signature].op
    return Finding(
        source=SOURCE,
        kind=Kind.RANK_STALLED,
        confidence=_confidence(len(waiting)),
        summary=(
            f"rank {rank} never issued {op}, {group.label} seq {head.seq}, "
            f"in which ranks {format_ranks(waiting)} wait"
        ),
        culprits=(rank,),
        victims=_others(evidence, (rank,)),
        where=Where(
            group=group.label,
            group_ranks=group.members,
            group_rank=group.members.index(rank) if rank in group.members else None,
            seq=head.seq,
            stuck_seq=head.seq,
            op=op,
            expected=_call(evidence, head.rank, head.at),
            frames=_frames(evidence, ((head.rank, head.at),)),
        ),
        evidence=(
            Citation(
                SOURCE,
                f"rank {rank}'s last call in {group.label} is seq {newest}; nothing is pending",
                evidence.tables[rank].file,
                rank=rank,
            ),
            _cite(evidence, head.rank, head.at, f"waits in {op}, seq {head.seq}"),
        ),
        chain=(f"rank {rank} does not arrive", *_consequences(evidence, graph, (rank,))),
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
    members = [m for m in group.members if m in evidence.tables]
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


def _state(evidence: FlightEvidence, rank: int, head: Head) -> State | None:
    at = evidence.find(rank, head.group, head.seq)
    return None if at is None else State(int(evidence.tables[rank].state[at]))


def _where(
    evidence: FlightEvidence,
    graph: WaitGraph,
    streams: dict[int, Stream],
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


def _cite_both(
    evidence: FlightEvidence, streams: dict[int, Stream], departure: Departure
) -> tuple[Citation, ...]:
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
