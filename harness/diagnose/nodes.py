"""Bundles of several nodes put together: one job seen from each of its machines."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from harness.diagnose.flight.sources import DumpSource
from harness.diagnose.hardware.find import merge_readings
from harness.diagnose.hardware.kernel import KernelEvent
from harness.diagnose.launcher.exits import Exits
from harness.diagnose.movement import MOVING, stood_s
from harness.diagnose.signals.find import merge_records
from harness.model.bundle import Manifest, Uncollected
from harness.model.ranks import format_ranks

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from harness.diagnose.gathered import Gathered

    class _HasFile(DataclassInstance, Protocol):
        @property
        def file(self) -> str: ...


F = TypeVar("F", bound="_HasFile")
T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """One bundle, read but for its dumps, which are still `sources`. `name` goes before its files."""

    name: str
    attempt: int
    gathered: "Gathered"
    sources: tuple[DumpSource, ...] = ()
    unreadable: tuple[str, ...] = ()
    complaints: list[str] = field(default_factory=list)

    @property
    def created(self) -> float:
        """When it was collected, unix seconds; 0 if its manifest is lost."""
        return self.gathered.manifest.created if self.gathered.manifest else 0.0

    @property
    def witnessed(self) -> set[int]:
        """Ranks of which it has anything."""
        g = self.gathered
        dumped = {s.rank for s in self.sources if s.rank is not None}
        return {*g.ranks, *g.stacks, *g.progress, *dumped}


def node_names(paths: Sequence[Path]) -> list[str]:
    """What goes before the files of each path: the folder's name, or all of the path where names collide."""
    names = [path.resolve().name for path in paths]
    return [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]


def merge_nodes(nodes: Sequence[Node]) -> Node:
    """All nodes as one: of a rank that two of them have, the newer one's evidence counts, and that is said.

    A node that collected from an earlier attempt than the others saw other processes: it is left out.
    """
    complaints: list[str] = []
    attempt = max(node.attempt for node in nodes)
    for node in nodes:
        if node.attempt < attempt:
            complaints.append(f"{node.name}: holds attempt {node.attempt}, others {attempt}: left out")
    kept = sorted((n for n in nodes if n.attempt == attempt), key=lambda n: n.created)
    owner = _owners(kept, complaints)
    parts = [_of_its_own(node, {r for r, n in owner.items() if n is node}) for node in kept]
    first = parts[0].gathered
    merged = dataclasses.replace(
        first,
        world_size=max(part.gathered.world_size for part in parts),
        manifest=_manifest(parts),
        ranks=_union(part.gathered.ranks for part in parts),
        stacks=_union(part.gathered.stacks for part in parts),
        shares=_union(part.gathered.shares for part in parts),
        progress=_union(part.gathered.progress for part in parts),
        resumed=_union(part.gathered.resumed for part in parts),
        records=merge_records([part.gathered.records for part in parts]),
        exits=_exits([part.gathered.exits for part in parts if part.gathered.exits]),
        launcher_error=next((e for p in parts if (e := p.gathered.launcher_error)), None),
        logs=tuple(event for part in parts for event in part.gathered.logs),
        cancelled=tuple(event for part in parts for event in part.gathered.cancelled),
        kernel=tuple(event for part in parts for event in _unmistakable(part, parts, complaints)),
        readings=merge_readings([part.gathered.readings for part in parts], [part.name for part in parts]),
        key_files=tuple(file for part in parts for file in part.gathered.key_files),
        complaints=tuple(line for part in parts for line in part.gathered.complaints),
    )
    return Node(
        name="",
        attempt=attempt,
        gathered=merged,
        sources=tuple(source for part in parts for source in part.sources),
        unreadable=tuple(line for part in parts for line in part.unreadable),
        complaints=complaints,
    )


def _owners(nodes: Sequence[Node], complaints: list[str]) -> dict[int, Node]:
    """Whose evidence counts for each rank: where its process was seen before where only a dump lay."""
    owner: dict[int, Node] = {}
    twice: dict[tuple[str, str], list[int]] = {}
    for node in nodes:
        for rank in node.witnessed:
            before = owner.get(rank)
            if before is not None and rank in before.gathered.ranks:
                if rank not in node.gathered.ranks:
                    continue
                twice.setdefault((before.name, node.name), []).append(rank)
            owner[rank] = node
    for (old, new), ranks in twice.items():
        complaints.append(f"rank {format_ranks(ranks)} is in {old} and in {new}: {new} is newer and counts")
    return owner


def _of_its_own(node: Node, ranks: set[int]) -> Node:
    """A node with the evidence of `ranks` alone, its files named with its folder in front."""
    g, name = node.gathered, node.name
    gathered = dataclasses.replace(
        g,
        ranks=_only(g.ranks, ranks),
        stacks={r: _named(s, name) for r, s in _only(g.stacks, ranks).items()},
        shares={r: _named(s, name) for r, s in _only(g.shares, ranks).items()},
        progress={r: _named(p, name) for r, p in _only(g.progress, ranks).items()},
        resumed={r: _named(p, name) for r, p in _only(g.resumed, ranks).items()},
        records=g.records.only(ranks, name),
        logs=tuple(_named(e, name) for e in g.logs if e.rank in ranks),
        cancelled=tuple(_named(e, name) for e in g.cancelled),
        kernel=tuple(_named(e, name) for e in g.kernel),
        key_files=tuple(f"{name}/{file}" for file in g.key_files),
        complaints=tuple(f"{name}/{line}" for line in g.complaints),
    )
    sources = tuple(
        dataclasses.replace(source, name=f"{name}/{source.name}")
        for source in node.sources
        if source.rank in ranks
    )
    unreadable = tuple(f"{name}/{line}" for line in node.unreadable)
    return dataclasses.replace(node, gathered=gathered, sources=sources, unreadable=unreadable)


def _manifest(parts: Sequence[Node]) -> Manifest | None:
    """The newest, with what is missing anywhere. Who saw movement, or it stand longest, speaks for all."""
    manifests = [(p.name, m) for p in parts if (m := p.gathered.manifest)]
    if not manifests:
        return None
    notices = [m.notice for _, m in manifests if m.notice]
    moving = [n for n in notices if n.startswith(("timeout", MOVING))]
    notices.sort(key=lambda notice: -(stood_s(notice) or 0.0))
    return dataclasses.replace(
        manifests[-1][1],
        world_size=max(m.world_size for _, m in manifests),
        notice=next(iter((*moving, *notices)), None),
        not_collected=tuple(
            Uncollected(f"{n}: {u.what}", u.why) for n, m in manifests for u in m.not_collected
        ),
    )


def _exits(all_exits: Sequence[Exits]) -> Exits | None:
    """One record of how ranks ended, from those of each agent."""
    if not all_exits:
        return None
    attempts = [exits.attempt for exits in all_exits]
    ends = [e for attempt in attempts for e in attempt.exits]
    stopping = [attempt.stopping for attempt in attempts if attempt.stopping is not None]
    return dataclasses.replace(
        all_exits[0],
        attempt=dataclasses.replace(
            attempts[0],
            started=min(attempt.started for attempt in attempts),
            pids=_union(attempt.pids for attempt in attempts),
            exits=tuple(sorted(ends, key=lambda e: float("inf") if e.at is None else e.at)),
            stopping=min(stopping, default=None),
        ),
        outcome=next((exits.outcome for exits in all_exits if exits.outcome), None),
    )


def _unmistakable(part: Node, parts: Sequence[Node], complaints: list[str]) -> list[KernelEvent]:
    """A node's kernel events without those whose pid is that of a rank on another machine."""
    others = {r.pid for other in parts if other is not part for r in other.gathered.ranks.values()}
    mistakable = [event for event in part.gathered.kernel if event.pid in others]
    complaints.extend(f"{e.file}: pid {e.pid} is on two machines: line {e.line} left out" for e in mistakable)
    return [event for event in part.gathered.kernel if event.pid not in others]


def _named(value: F, name: str) -> F:
    return dataclasses.replace(value, file=f"{name}/{value.file}")


def _only(values: Mapping[int, T], ranks: set[int]) -> dict[int, T]:
    return {rank: value for rank, value in values.items() if rank in ranks}


def _union(parts: Iterable[Mapping[int, T]]) -> dict[int, T]:
    return {key: value for part in parts for key, value in sorted(part.items())}
