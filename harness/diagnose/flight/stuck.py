"""Who does not arrive, or a call that all joined and that does not move."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.diagnose.flight.age import is_hang, waited_s
from harness.diagnose.flight.describe import (
    SOURCE,
    call_of,
    cite,
    confidence_from,
    consequences,
    frames_of,
    others_than,
)
from harness.diagnose.flight.diverged import MIN_SISTERS, departures_inside, silent_departure
from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.table import State
from harness.diagnose.flight.waits import Head, Knot, WaitGraph
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks


def idle_ranks(
    evidence: FlightEvidence, graph: WaitGraph, knots: Sequence[Knot], hang: bool | None
) -> Finding:
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
    place = group.members.index(ranks[0]) if ranks[0] in group.members else None
    where = replace(_at_head(evidence, head), group_rank=place)
    if stands is False:
        return _still_runs(evidence, head, where, f"{who} just computes")
    whole = all(evidence.tables[rank].gaps is None for rank in ranks)
    convicted = len(ranks) == 1 and stands is True and whole
    if convicted and (silent := silent_departure(evidence, graph, ranks[0])) is not None:
        return silent
    return Finding(
        source=SOURCE,
        kind=Kind.RANK_STALLED,
        confidence=confidence_from(len(waiting)) if convicted else Confidence.POSSIBLE,
        summary=(
            f"{who} never issued {op}, {group.label} seq {head.seq}, "
            f"in which ranks {format_ranks(waiting)} wait"
        ),
        culprits=ranks if convicted else (),
        suspects=() if convicted else ranks,
        victims=others_than(evidence, ranks),
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
            cite(evidence, head.rank, head.at, f"waits in {op}, seq {head.seq}"),
        ),
        chain=(f"{who} does not arrive", *consequences(evidence, graph, ranks)),
    )


def _at_head(evidence: FlightEvidence, head: Head) -> Where:
    """The call that a head stands at, as a place."""
    group = evidence.groups[head.group]
    return Where(
        group=group.label,
        group_ranks=group.members,
        seq=head.seq,
        stuck_seq=head.seq,
        op=evidence.interner.signatures[head.signature].op,
        expected=call_of(evidence, head.rank, head.at),
        frames=frames_of(evidence, ((head.rank, head.at),)),
    )


def _still_runs(evidence: FlightEvidence, head: Head, where: Where, what: str) -> Finding:
    """Nobody has waited longer than the job's own steps take."""
    waited = waited_s(evidence, head)
    age = f" for {waited:.1f} s" if waited is not None else ""
    return Finding(
        source=SOURCE,
        kind=Kind.HEALTHY,
        confidence=Confidence.LIKELY,
        summary=f"a snapshot of a job that runs: {what}, and nobody has waited long",
        where=where,
        evidence=(cite(evidence, head.rank, head.at, f"waits in {where.op}{age}"),),
    )


def joined_and_stuck(
    evidence: FlightEvidence, graph: WaitGraph, knot: Knot, hang: bool | None
) -> Iterator[Finding]:
    """A call that all members with dumps joined alike: who is missing, whose device, or the fabric."""
    head = knot.heads[0]
    group = evidence.groups[head.group]
    where = _at_head(evidence, head)
    if (hang if hang is not None else is_hang(evidence, list(knot.heads))) is False:
        yield _still_runs(evidence, head, where, f"ranks {format_ranks(knot.ranks)} are in {where.op}")
        return
    absent = graph.missing.get(head.rank, ())
    if absent:
        sole = len(absent) == 1
        who = absent if sole else ()
        if len(group.members) == 2:
            # Its only partner left no dump: either may be the one who deviates.
            who = tuple(sorted((*absent, *knot.ranks)))
        departed = list(departures_inside(evidence, graph, knot.ranks, sisters_needed=MIN_SISTERS))
        if not head.p2p:
            departed.extend(
                _parted_behind(evidence, graph, [m for m in group.members if m in evidence.tables], head)
            )
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
            suspects=who,
            victims=others_than(evidence, who),
            where=where,
            evidence=(cite(evidence, head.rank, head.at, "waits for a rank without a dump"),),
            chain=(f"rank {format_ranks(absent)} may not have arrived",) if sole else (),
        )
        return
    if head.p2p:
        yield _stuck_pair(evidence, graph, knot, where)
        return
    members = [m for m in group.members if m in evidence.tables]
    done = [m for m in members if _state(evidence, m, head) is State.DONE]
    if done:
        yield from _parted_behind(evidence, graph, members, head) or (
            _holders(evidence, members, done, head, where),
        )
        return
    started = [m for m in members if _state(evidence, m, head) is State.STARTED]
    idle = [m for m in members if _state(evidence, m, head) is State.SCHEDULED]
    if started and len(idle) == 1:
        yield Finding(
            source=SOURCE,
            kind=Kind.GPU_STALLED,
            confidence=confidence_from(len(started)),
            summary=(f"rank {idle[0]}'s {where.op} is enqueued but does not start; its peers' have"),
            culprits=(idle[0],),
            victims=others_than(evidence, (idle[0],)),
            where=where,
            evidence=(cite(evidence, idle[0], head.at, "scheduled, not started"),),
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
        evidence=tuple(cite(evidence, m, head.at, "joined, not complete") for m in members[:3]),
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
        evidence=(cite(evidence, head.rank, head.at, "issued on both sides, not complete"),),
    )


def _parted_behind(
    evidence: FlightEvidence, graph: WaitGraph, members: Sequence[int], head: Head
) -> tuple[Finding, ...]:
    """A break at a later call of the group, of which a call that only some completed is a consequence.

    So it is on gloo: the break kills a rank, and whoever still waited for its last message loses it.
    """
    behind = sorted({h.seq for h in graph.heads.values() if h.group == head.group and h.seq > head.seq})
    for seq in behind:
        at = {m: i for m in members if (i := evidence.find(m, head.group, seq)) is not None}
        if len({int(evidence.tables[m].signature[i]) for m, i in at.items()}) > 1:
            found = departures_inside(evidence, graph, tuple(at), sisters_needed=MIN_SISTERS)
            return tuple(f for f in found if f.culprits and f.where.stuck_seq == seq)
    return ()


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
        victims=others_than(evidence, holders),
        where=where,
        evidence=(
            cite(evidence, head.rank, head.at, "not complete"),
            Citation(SOURCE, f"rank {done[0]}: complete", evidence.tables[done[0]].file, rank=done[0]),
        ),
    )


def _state(evidence: FlightEvidence, rank: int, head: Head) -> State | None:
    at = evidence.find(rank, head.group, head.seq)
    return None if at is None else State(int(evidence.tables[rank].state[at]))
