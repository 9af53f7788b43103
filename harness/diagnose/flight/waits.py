"""Who waits for whom: each rank's earliest incomplete operation, and the members that have not arrived."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.pairs import Pairs, pair_agrees
from harness.diagnose.flight.table import State
from harness.diagnose.flight.uneven import fits, is_uneven


@dataclass(frozen=True)
class Head:
    """The operation that one rank stands at: position in its table, group, sequence, signature number."""

    rank: int
    at: int
    group: int
    seq: int
    signature: int
    p2p: bool


@dataclass(frozen=True)
class Knot:
    """A sink of the wait-for graph: ranks that wait for nobody outside. `heads` of those that wait."""

    ranks: tuple[int, ...]
    heads: tuple[Head, ...]

    @property
    def idle(self) -> bool:
        """One rank with nothing pending: it stalled, ended, or just computes."""
        return not self.heads


@dataclass(frozen=True)
class WaitGraph:
    """Heads of all ranks, the knots everybody waits for in the end, and edges to ranks without dumps."""

    heads: Mapping[int, Head]
    knots: tuple[Knot, ...]
    waits_for: Mapping[int, tuple[int, ...]]
    missing: Mapping[int, tuple[int, ...]]
    pairs: Pairs


def find_heads(evidence: FlightEvidence, pairs: Pairs) -> dict[int, Head]:
    """Each rank's earliest operation that is not done."""
    heads: dict[int, Head] = {}
    for rank, table in evidence.tables.items():
        for at in np.flatnonzero(table.state != State.DONE).tolist():
            p2p = bool(table.p2p[at])
            if p2p and pairs.channel(rank, at) is None:
                continue
            heads[rank] = Head(
                rank, at, int(table.group[at]), int(table.seq[at]), int(table.signature[at]), p2p
            )
            break
    return heads


def build_graph(evidence: FlightEvidence) -> WaitGraph:
    """Edges from every rank that waits to the members that have not arrived; then the sinks."""
    pairs = Pairs(evidence)
    heads = find_heads(evidence, pairs)
    waits_for: dict[int, tuple[int, ...]] = {}
    missing: dict[int, tuple[int, ...]] = {}
    for targets, ranks in _targets(evidence, heads, pairs):
        seen = tuple(t for t in targets if t in evidence.tables)
        unseen = tuple(t for t in targets if t not in evidence.tables)
        for rank in ranks:
            waits_for[rank] = tuple(t for t in seen if t != rank)
            if unseen:
                missing[rank] = unseen
    awaited = {t for targets in waits_for.values() for t in targets}
    knots = tuple(
        Knot(tuple(sorted(part)), tuple(heads[r] for r in sorted(part) if r in heads))
        for part in _sinks(evidence.tables, waits_for)
        if any(r in heads for r in part) or not awaited.isdisjoint(part)
    )
    return WaitGraph(heads, knots, waits_for, missing, pairs)


def _targets(
    evidence: FlightEvidence, heads: Mapping[int, Head], pairs: Pairs
) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """For each set of ranks at one and the same collective, and each send or receive: who is awaited."""
    classes: dict[tuple[int, int, int], list[int]] = {}
    for head in heads.values():
        if head.p2p:
            yield tuple(_peer_not_arrived(evidence, heads, pairs, head)), [head.rank]
        else:
            classes.setdefault((head.group, head.seq, head.signature), []).append(head.rank)
    for (_, _, signature), ranks in classes.items():
        if is_uneven(evidence.interner.signatures[signature]):
            # What fits depends on who asks.
            for rank in ranks:
                yield tuple(_not_arrived(evidence, heads, heads[rank])), [rank]
        else:
            yield tuple(_not_arrived(evidence, heads, heads[ranks[0]])), ranks


def _not_arrived(evidence: FlightEvidence, heads: Mapping[int, Head], head: Head) -> Iterator[int]:
    mine = evidence.interner.signatures[head.signature]
    members = evidence.groups[head.group].members
    for member in members:
        if member not in evidence.tables:
            yield member
            continue
        table = evidence.tables[member]
        at = evidence.find(member, head.group, head.seq)
        if at is None:
            oldest = evidence.oldest(member, head.group)
            lost = table.gaps is not None and evidence.newest(member, head.group) > head.seq
            if (oldest is None or oldest <= head.seq) and not lost:
                yield member
            continue
        theirs = evidence.interner.signatures[int(table.signature[at])]
        if not fits(mine, theirs, members, head.rank, member) or _queued(evidence, heads, member, at):
            yield member


def _peer_not_arrived(
    evidence: FlightEvidence, heads: Mapping[int, Head], pairs: Pairs, head: Head
) -> Iterator[int]:
    peer = pairs.peer(head.rank, head.at)
    assert peer is not None
    if peer not in evidence.tables:
        yield peer
        return
    there = pairs.match(head.rank, head.at)
    if there is None:
        if not pairs.gone(head.rank, head.at):
            yield peer
        return
    ends = evidence.signature(head.rank, head.at), evidence.signature(peer, there)
    send, receive = ends if ends[0].op == "send" else reversed(ends)
    if not pair_agrees(send, receive) or _queued(evidence, heads, peer, there):
        yield peer


def _queued(evidence: FlightEvidence, heads: Mapping[int, Head], member: int, at: int) -> bool:
    """Whether a member issued its call behind an earlier incomplete one and it has not started."""
    table = evidence.tables[member]
    head = heads.get(member)
    if head is None or head.at >= at or table.state[at] not in (State.SCHEDULED, State.UNKNOWN):
        return False
    # Sends and receives of one batch go off together.
    batch = table.p2p[at] and head.p2p and table.seq[at] == head.seq and table.group[at] == head.group
    return not batch


def _sinks(ranks: Iterable[int], waits_for: Mapping[int, tuple[int, ...]]) -> Iterator[frozenset[int]]:
    """Strongly connected components with no way out."""
    components = tuple(_components(sorted(ranks), waits_for))
    home = {rank: i for i, part in enumerate(components) for rank in part}
    for i, part in enumerate(components):
        if all(home[t] == i for rank in part for t in waits_for.get(rank, ())):
            yield part


def _components(ranks: list[int], edges: Mapping[int, tuple[int, ...]]) -> Iterator[frozenset[int]]:
    """Strongly connected components (Tarjan's algorithm, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in ranks:
        work: list[tuple[int, Iterator[int]]] = [] if root in order else [(root, iter(()))]
        while work:
            node, targets = work[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
                on_stack.add(node)
                targets = iter(edges.get(node, ()))
                work[-1] = (node, targets)
            child = _next_child(node, targets, order, low, on_stack)
            if child is not None:
                work.append((child, iter(())))
                continue
            work.pop()
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
            if low[node] == order[node]:
                yield frozenset(_pop_component(node, stack, on_stack))


def _next_child(
    node: int, targets: Iterator[int], order: dict[int, int], low: dict[int, int], on_stack: set[int]
) -> int | None:
    for target in targets:
        if target not in order:
            return target
        if target in on_stack:
            low[node] = min(low[node], order[target])
    return None


def _pop_component(node: int, stack: list[int], on_stack: set[int]) -> Iterator[int]:
    while True:
        member = stack.pop()
        on_stack.discard(member)
        yield member
        if member == node:
            return
