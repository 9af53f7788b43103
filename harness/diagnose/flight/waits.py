"""Who waits for whom: each rank's earliest incomplete operation, and the members that have not arrived."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.table import Signature, State

UNEVEN = frozenset(
    [
        "gather",
        "scatter",
        "all_to_all",
        "alltoall",
        "alltoall_base",
        "all_to_all_single",
        "reduce_scatter_v",
        "all_gather_v",
        "allgather_v",
    ]
)
"""Operations whose sizes may differ between members by design."""


@dataclass(frozen=True)
class Head:
    """The operation that one rank stands at: position in its table, group, sequence, signature number."""

    rank: int
    at: int
    group: int
    seq: int
    signature: int


@dataclass(frozen=True)
class Knot:
    """A sink of the wait-for graph: ranks that wait for nobody outside. `heads` of those that wait at all."""

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


def find_heads(evidence: FlightEvidence) -> dict[int, Head]:
    """Each rank's earliest operation that is not done."""
    heads: dict[int, Head] = {}
    for rank, table in evidence.tables.items():
        pending = np.flatnonzero((table.state != State.DONE) & ~table.p2p)
        if len(pending):
            at = int(pending[0])
            heads[rank] = Head(rank, at, int(table.group[at]), int(table.seq[at]), int(table.signature[at]))
    return heads


def build_graph(evidence: FlightEvidence) -> WaitGraph:
    """Edges from every rank that waits to the members that have not arrived; then the sinks."""
    heads = find_heads(evidence)
    classes: dict[tuple[int, int, int], list[int]] = {}
    for head in heads.values():
        classes.setdefault((head.group, head.seq, head.signature), []).append(head.rank)
    waits_for: dict[int, tuple[int, ...]] = {}
    missing: dict[int, tuple[int, ...]] = {}
    for (group, seq, signature), ranks in classes.items():
        targets = tuple(_not_arrived(evidence, heads, group, seq, signature))
        seen = tuple(t for t in targets if t in evidence.tables)
        unseen = tuple(t for t in targets if t not in evidence.tables)
        for rank in ranks:
            waits_for[rank] = tuple(t for t in seen if t != rank)
            if unseen:
                missing[rank] = unseen
    knots = tuple(
        Knot(tuple(sorted(part)), tuple(heads[r] for r in sorted(part) if r in heads))
        for part in _sinks(evidence.tables, waits_for)
        if any(r in heads for r in part) or _awaited(part, waits_for)
    )
    return WaitGraph(heads, knots, waits_for, missing)


def comparable(a: Signature, b: Signature) -> bool:
    """Whether two members' signatures can belong to one healthy collective."""
    if a == b:
        return True
    return a.op == b.op and a.op.lstrip("_") in UNEVEN


def _not_arrived(
    evidence: FlightEvidence, heads: Mapping[int, Head], group: int, seq: int, signature: int
) -> Iterator[int]:
    mine = evidence.interner.signatures[signature]
    for member in evidence.groups[group].members:
        if member not in evidence.tables:
            yield member
            continue
        table = evidence.tables[member]
        at = evidence.find(member, group, seq)
        if at is None:
            oldest = evidence.oldest(member, group)
            if oldest is None or oldest <= seq:
                yield member
        elif not comparable(mine, evidence.interner.signatures[int(table.signature[at])]) or (
            member in heads and heads[member].at < at and table.state[at] in (State.SCHEDULED, State.UNKNOWN)
        ):
            yield member


def _awaited(part: Iterable[int], waits_for: Mapping[int, tuple[int, ...]]) -> bool:
    members = set(part)
    return any(not members.isdisjoint(targets) for targets in waits_for.values())


def _sinks(ranks: Iterable[int], waits_for: Mapping[int, tuple[int, ...]]) -> Iterator[frozenset[int]]:
    """Strongly connected components with no way out (Tarjan's algorithm, without recursion)."""
    components = tuple(_components(sorted(ranks), waits_for))
    home = {rank: i for i, part in enumerate(components) for rank in part}
    for i, part in enumerate(components):
        if all(home[t] == i for rank in part for t in waits_for.get(rank, ())):
            yield part


def _components(ranks: list[int], edges: Mapping[int, tuple[int, ...]]) -> Iterator[frozenset[int]]:
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in ranks:
        if root in order:
            continue
        work: list[tuple[int, Iterator[int]]] = []

        def enter(node: int, work: list[tuple[int, Iterator[int]]] = work) -> None:
            order[node] = low[node] = len(order)
            stack.append(node)
            on_stack.add(node)
            work.append((node, iter(edges.get(node, ()))))

        enter(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in order:
                    enter(target)
                    break
                if target in on_stack:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    part: set[int] = set()
                    while node not in part:
                        member = stack.pop()
                        on_stack.discard(member)
                        part.add(member)
                    yield frozenset(part)
