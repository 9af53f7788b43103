"""Sends and receives that nobody recorded (gloo): stacks and neighbours say between whom the chain broke."""

from collections.abc import Sequence

from harness.diagnose.deaths import cite_log
from harness.diagnose.gathered import Gathered
from harness.diagnose.stalls import cite_stack, place_of, position_of
from harness.model.diagnosis import Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

_P2P_CALLS = frozenset(("recv", "send", "irecv", "isend", "batch_isend_irecv", "wait"))


def broken_chain(gathered: Gathered) -> Finding | None:
    """Ranks sit in receives along a chain: the two between whom what they wait for changes.

    Before the break all wait for gradients, behind it for activations (or have gone on): only there a
    message can be missing. Which of the two is wrong, stacks do not say.
    """
    if gathered.still_moving:
        return None
    idle = next((f for f in gathered.flight.findings if f.kind is Kind.RANK_STALLED and f.suspects), None)
    if idle is None:
        return None
    for chain in unrecorded_groups(gathered):
        if not set(idle.suspects) <= set(chain) or not all(r in gathered.stacks for r in chain):
            continue
        if any(position_of(rank, gathered).call not in _P2P_CALLS for rank in idle.suspects):
            continue
        places = [place_of(position_of(rank, gathered)) for rank in chain]
        changes = [i for i in range(1, len(chain)) if places[i] != places[i - 1]]
        if len(changes) == 1:
            ends = (chain[changes[0] - 1], chain[changes[0]])
            return _between(ends, chain, idle, gathered)
    return None


def aborted_receiver(gathered: Gathered) -> Finding | None:
    """gloo aborted a rank that received too much, and all collectives agree: it came from a neighbour."""
    if gathered.exits is None or any(f.culprits for f in gathered.flight.findings):
        return None
    aborts = {e.rank: e for e in gathered.logs if e.kind == "gloo_abort"}
    dead = [e.rank for e in gathered.exits.own if e.signal == "SIGABRT" and e.rank in aborts]
    if len(dead) != 1:
        return None
    (rank,) = dead
    neighbours = sorted(
        {
            chain[i]
            for chain in unrecorded_groups(gathered)
            if rank in chain
            for i in (chain.index(rank) - 1, chain.index(rank) + 1)
            if 0 <= i < len(chain)
        }
    )
    if not neighbours:
        return None
    suspects = tuple(sorted((rank, *neighbours)))
    return Finding(
        source="log",
        kind=Kind.P2P_MISMATCH,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"rank {rank} received more than it expected and gloo aborted it; all collectives agree, so "
            f"it was a message of rank {' or '.join(map(str, neighbours))}, or it expected too little"
        ),
        suspects=suspects,
        victims=tuple(r for r in range(gathered.world_size) if r not in suspects),
        evidence=(cite_log(aborts[rank]),),
        chain=(f"a message to rank {rank} has the wrong size", f"-> gloo aborts rank {rank}"),
    )


def unrecorded_groups(gathered: Gathered) -> list[tuple[int, ...]]:
    """Groups of the rank map in which no collective is on record: what they carry is sends and receives."""
    recorded = {(g.name, g.members) for g in gathered.flight.evidence.groups}
    return sorted(
        {
            group.ranks
            for record in gathered.ranks.values()
            for group in record.groups
            if (group.name, group.ranks) not in recorded and len(group.ranks) > 1
        }
    )


def _between(ends: tuple[int, int], chain: Sequence[int], idle: Finding, gathered: Gathered) -> Finding:
    first, second = (position_of(rank, gathered).frame for rank in ends)
    cited = tuple(
        cite_stack(gathered, rank, f"waits in {frame}")
        for rank, frame in zip(ends, (first, second), strict=True)
    )
    group = next(g for r in gathered.ranks.values() for g in r.groups if g.ranks == tuple(chain))
    return Finding(
        source="stack",
        kind=Kind.P2P_MISMATCH,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"the chain {format_ranks(chain)} broke between ranks {ends[0]} and {ends[1]}: rank {ends[0]} "
            f"waits in {first}, rank {ends[1]} in {second}; which of the two is wrong the stacks do not say"
        ),
        suspects=ends,
        victims=tuple(r for r in range(gathered.world_size) if r not in ends),
        where=Where(group=group.description, group_ranks=tuple(chain), op="recv", step=idle.where.step),
        evidence=(*cited, *idle.evidence[-1:]),
        chain=(f"ranks {ends[0]} and {ends[1]} do not agree on a message", *idle.chain[1:]),
    )
