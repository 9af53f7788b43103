"""A break in words: calls, places, citations, chains."""

from collections.abc import Iterator, Sequence

from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.intern import Signature
from harness.diagnose.flight.streams import Departure, StreamSet
from harness.diagnose.flight.waits import WaitGraph
from harness.model.diagnosis import CallSignature, Citation, Where
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

SOURCE = "flight_recorder"


def short_call(call: Signature | CallSignature) -> str:
    """``all_reduce [1048576]``, with the dtype where it is not the usual float."""
    sizes = "".join(str(list(shape)) for shape in call.input_sizes)
    dtypes = [d for d in call.input_dtypes if d != "Float"]
    return " ".join([call.op, *([sizes] if sizes else []), *dtypes[:1]])


def place(
    evidence: FlightEvidence,
    graph: WaitGraph,
    streams: StreamSet,
    departure: Departure,
) -> Where:
    first_odd = departure.ranks[0]
    # Said of the odd rank's own group where a member of it came that far.
    for rank in (*departure.sisters, departure.reference):
        peers = streams[rank]
        at = int(peers.at[min(departure.index, len(peers) - 1)])
        table = evidence.tables[rank]
        group = evidence.groups[int(table.group[at])]
        if len(peers) > departure.index and first_odd in group.members:
            break
    odd_calls = {
        rank: int(streams[rank].at[departure.index])
        for rank in departure.ranks
        if len(streams[rank]) > departure.index
    }
    stuck = [graph.heads[r] for r in departure.sisters if r in graph.heads]
    return Where(
        group=group.label,
        group_ranks=group.members,
        group_rank=group.members.index(first_odd) if first_odd in group.members else None,
        seq=int(table.seq[at]),
        stuck_seq=max((head.seq for head in stuck), default=None),
        op=evidence.signature(peers.rank, at).op,
        expected=call_of(evidence, peers.rank, at),
        found={rank: call_of(evidence, rank, odd) for rank, odd in odd_calls.items()},
        frames=frames_of(evidence, (*odd_calls.items(), (peers.rank, at))),
    )


def frames_of(evidence: FlightEvidence, calls: Sequence[tuple[int, int]]) -> dict[int, tuple[str, ...]]:
    """Python frames of calls, innermost first: from the call's own site out to the script."""
    frames: dict[int, tuple[str, ...]] = {}
    for rank, at in calls:
        stack, site = evidence.stack(rank, at), evidence.site(rank, at)
        own = stack[stack.index(site) :] if site in stack else stack
        script = next((i for i, f in enumerate(own) if f.function == "<module>"), len(own))
        frames[rank] = tuple(str(frame) for frame in own[: script + 1])
    return frames


def call_of(evidence: FlightEvidence, rank: int, at: int) -> CallSignature:
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


def cite(evidence: FlightEvidence, rank: int, at: int, says: str) -> Citation:
    table = evidence.tables[rank]
    record = int(table.record[at]) if at < len(table) else None
    return Citation(SOURCE, f"rank {rank}: {says}", table.file, record=record, rank=rank)


def cite_sides(evidence: FlightEvidence, streams: StreamSet, departure: Departure) -> tuple[Citation, ...]:
    cited: list[Citation] = []
    for rank in (*departure.ranks, *departure.sisters[:3]):
        stream = streams[rank]
        if len(stream) > departure.index:
            at = int(stream.at[departure.index])
            site = evidence.site(rank, at)
            made = f" by {site}" if site else ""
            says = f"seq {int(evidence.tables[rank].seq[at])} is {short_call(evidence.signature(rank, at))}"
            cited.append(cite(evidence, rank, at, says + made))
    return tuple(cited)


def sentence(kind: Kind, who: str, peers: str, where: Where) -> str:
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


def chain_of(
    evidence: FlightEvidence, graph: WaitGraph, kind: Kind, ranks: Sequence[int], where: Where
) -> tuple[str, ...]:
    """From the break to everybody who waits because of it, group by group."""
    who = f"rank {format_ranks(ranks)}"
    links = [f"{who}: {kind.value.replace('_', ' ')} at {where.group} seq {where.seq}"]
    if where.stuck_seq is not None and where.stuck_seq != where.seq:
        links.append(f"-> the next calls pair silently; the break shows at seq {where.stuck_seq}")
    return (*links, *consequences(evidence, graph, tuple(ranks)))


def consequences(evidence: FlightEvidence, graph: WaitGraph, roots: tuple[int, ...]) -> Iterator[str]:
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


def others_than(evidence: FlightEvidence, ranks: Sequence[int]) -> tuple[int, ...]:
    return tuple(r for r in range(evidence.world_size) if r not in ranks)


def confidence_from(agreeing: int) -> Confidence:
    """Source: DIAGNOSIS, Flight Recorder rules: certain from three agreeing sisters, likely from two."""
    if agreeing >= 3:
        return Confidence.CERTAIN
    return Confidence.LIKELY if agreeing == 2 else Confidence.POSSIBLE
