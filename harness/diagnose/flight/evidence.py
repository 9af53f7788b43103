"""All ranks' tables with groups resolved to members and completion made comparable."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from harness.diagnose.flight.table import Interner, Ints, RankTable, Signature, Site, State

DEFAULT_GROUP = "default_pg"


@dataclass(frozen=True)
class Group:
    """One process group. `members` are global ranks in group order; empty where nothing says who they are."""

    name: str
    description: str
    members: tuple[int, ...]

    @property
    def label(self) -> str:
        """The description where there is one, else the name."""
        return self.description if self.description not in ("", "undefined") else self.name


@dataclass
class FlightEvidence:
    """Everything that the dumps say. `RankTable.group` indexes `groups` here."""

    world_size: int
    tables: Mapping[int, RankTable]
    groups: Sequence[Group]
    interner: Interner
    complaints: tuple[str, ...] = ()
    _index: dict[int, dict[tuple[int, int], int]] = field(default_factory=dict)

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """Ranks of the world without a dump."""
        return tuple(sorted(set(range(self.world_size)) - set(self.tables)))

    def find(self, rank: int, group: int, seq: int) -> int | None:
        """The position of a rank's collective (group, seq) in its table."""
        if rank not in self._index:
            table = self.tables[rank]
            at = np.flatnonzero(~table.p2p)
            keys = zip(table.group[at].tolist(), table.seq[at].tolist(), strict=True)
            self._index[rank] = dict(zip(keys, at.tolist(), strict=True))
        return self._index[rank].get((group, seq))

    def oldest(self, rank: int, group: int) -> int | None:
        """The smallest collective sequence number that a rank's ring still holds for a group."""
        table = self.tables[rank]
        held = table.seq[(table.group == group) & ~table.p2p]
        return int(held.min()) if len(held) else None

    def newest(self, rank: int, group: int) -> int:
        """The last collective that a rank enqueued in a group, 0 if none."""
        table = self.tables[rank]
        held = table.seq[(table.group == group) & ~table.p2p]
        return int(held.max()) if len(held) else 0

    def signature(self, rank: int, at: int) -> Signature:
        """The signature of one entry."""
        return self.interner.signatures[int(self.tables[rank].signature[at])]

    def site(self, rank: int, at: int) -> Site | None:
        """Who made one call."""
        return self.interner.sites[int(self.tables[rank].site[at])]

    def stack(self, rank: int, at: int) -> tuple[Site, ...]:
        """The Python stack of one call, innermost first."""
        return self.interner.stacks[int(self.tables[rank].stack[at])]


@dataclass(frozen=True)
class Membership:
    """A group as some source outside the dumps knows it (ranks.json)."""

    name: str
    description: str
    members: tuple[int, ...]


def normalise(
    tables: Iterable[RankTable],
    interner: Interner,
    memberships: Sequence[Membership] = (),
    world_size: int | None = None,
    complaints: tuple[str, ...] = (),
) -> FlightEvidence:
    """Resolve groups to members and gloo's `retired` to states.

    `world_size` is taken from the caller, else from the memberships, else from the dumps: the largest
    pg_config of the default group, or the highest rank that left a dump.
    """
    by_rank = {table.rank: table for table in tables}
    world = world_size or _world_size(by_rank.values(), memberships)
    groups, remap = _resolve_groups(by_rank, interner, memberships, world)
    for rank, table in by_rank.items():
        table.group = np.array(remap[rank], dtype=np.int64)[table.group]
    evidence = FlightEvidence(world, by_rank, groups, interner, complaints)
    gloo = [table for table in by_rank.values() if table.backend == "gloo"]
    for table in gloo:
        table.state = _retired_but_last(table)
    for table in gloo:
        _settle_last(evidence, table)
        _settle_late(evidence, table)
    return evidence


def _world_size(tables: Iterable[RankTable], memberships: Sequence[Membership]) -> int:
    sizes = [max(m.members) + 1 for m in memberships if m.members]
    for table in tables:
        sizes.append(table.rank + 1)
        sizes.extend(max(members) + 1 for members in table.members.values())
    return max(sizes, default=0)


def _resolve_groups(
    tables: Mapping[int, RankTable],
    interner: Interner,
    memberships: Sequence[Membership],
    world: int,
) -> tuple[list[Group], dict[int, list[int]]]:
    """Global groups, and for each rank the global number of each interned (name, description)."""
    groups: list[Group] = []
    numbers: dict[Group, int] = {}
    remap: dict[int, list[int]] = {}
    users: dict[tuple[str, str], list[int]] = {}
    for rank, table in tables.items():
        for local in np.unique(table.group).tolist():
            users.setdefault(interner.groups[local], []).append(rank)
    for rank, table in tables.items():
        remap[rank] = [-1] * len(interner.groups)
        for local in np.unique(table.group).tolist():
            name, description = interner.groups[local]
            members = _members_of(rank, table, name, description, memberships, world)
            if not members and len(tables) == world:
                members = tuple(sorted(users[name, description]))
            group = Group(name, description, members)
            if group not in numbers:
                numbers[group] = len(groups)
                groups.append(group)
            remap[rank][local] = numbers[group]
    return groups, remap


def _members_of(
    rank: int,
    table: RankTable,
    name: str,
    description: str,
    memberships: Sequence[Membership],
    world: int,
) -> tuple[int, ...]:
    if description == DEFAULT_GROUP:
        return tuple(range(world))
    for known in memberships:
        if (known.name, known.description) == (name, description) and rank in known.members:
            return known.members
    stated = table.members.get((name, description), ())
    return stated if rank in stated else ()


def _retired_but_last(table: RankTable) -> Ints:
    """gloo: done when retired, but the last entry's retirement is no proof (its wait may have raised)."""
    state = np.where(table.retired, int(State.DONE), table.state)
    if len(state) and table.retired[-1]:
        state[-1] = int(State.UNKNOWN)
    return state.astype(np.int64)


def _settle_last(evidence: FlightEvidence, table: RankTable) -> None:
    """An unknown last entry is done if every member has a dump with an equal entry there."""
    if not len(table) or table.state[-1] != State.UNKNOWN or table.p2p[-1]:
        return
    if _all_agree(evidence, table, len(table) - 1, evidence.groups[int(table.group[-1])].members):
        table.state[-1] = int(State.DONE)


def _settle_late(evidence: FlightEvidence, table: RankTable) -> None:
    """gloo's thread retires an operation after `wait()` returned: the next one may be recorded first."""
    for at in np.flatnonzero(table.state[:-1] == State.SCHEDULED).tolist():
        others = tuple(m for m in evidence.groups[int(table.group[at])].members if m != table.rank)
        if _all_agree(evidence, table, at, others, done=True):
            table.state[at] = int(State.DONE)


def _all_agree(
    evidence: FlightEvidence,
    table: RankTable,
    at: int,
    members: tuple[int, ...],
    done: bool = False,
) -> bool:
    group, seq = int(table.group[at]), int(table.seq[at])
    for member in members:
        if member not in evidence.tables:
            return False
        there = evidence.find(member, group, seq)
        peer = evidence.tables[member]
        if there is None or peer.signature[there] != table.signature[at]:
            return False
        if done and peer.state[there] != State.DONE and there == len(peer) - 1:
            return False
    return bool(members)
