"""All ranks' tables with groups resolved to members and completion made comparable."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from harness.diagnose.flight.fingerprints import drop_fingerprints
from harness.diagnose.flight.groups import DEFAULT_GROUP, Group, Membership, resolve_groups, roster
from harness.diagnose.flight.intern import Column, Interner, Signature, Site
from harness.diagnose.flight.table import COLUMNS, RankTable, State

__all__ = ["DEFAULT_GROUP", "FlightEvidence", "Group", "Membership", "normalise"]


@dataclass
class FlightEvidence:
    """Everything that the dumps say. `RankTable.group` indexes `groups` here.

    `rosters`: for each rank the groups that something states it belongs to, used or not.
    """

    world_size: int
    tables: Mapping[int, RankTable]
    groups: Sequence[Group]
    interner: Interner
    complaints: tuple[str, ...] = ()
    rosters: Mapping[int, tuple[Group, ...]] = field(default_factory=dict)
    _index: dict[tuple[int, int], tuple[Column, Column]] = field(default_factory=dict)

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """Ranks of the world without a dump."""
        return tuple(sorted(set(range(self.world_size)) - set(self.tables)))

    @cached_property
    def site_of_stack(self) -> Column:
        """The site number of each stack number."""
        return np.array(self.interner.site_of_stack, dtype=np.int32)

    def held(self, rank: int, group: int) -> tuple[Column, Column]:
        """Sequence numbers and table positions of a rank's collectives in a group, oldest first."""
        key = (rank, group)
        if key not in self._index:
            table = self.tables[rank]
            at = np.flatnonzero((table.group == group) & ~table.p2p)
            self._index[key] = (table.seq[at], at)
        return self._index[key]

    def find(self, rank: int, group: int, seq: int) -> int | None:
        """The position of a rank's collective (group, seq) in its table."""
        seqs, at = self.held(rank, group)
        i = int(np.searchsorted(seqs, seq))
        return int(at[i]) if i < len(seqs) and seqs[i] == seq else None

    def oldest(self, rank: int, group: int) -> int | None:
        """The smallest collective sequence number that a rank's ring still holds for a group."""
        seqs, _ = self.held(rank, group)
        return int(seqs[0]) if len(seqs) else None

    def newest(self, rank: int, group: int) -> int:
        """The last collective that a rank enqueued in a group, 0 if none."""
        seqs, _ = self.held(rank, group)
        return int(seqs[-1]) if len(seqs) else 0

    def signature(self, rank: int, at: int) -> Signature:
        """The signature of one entry."""
        return self.interner.signatures[int(self.tables[rank].signature[at])]

    def site(self, rank: int, at: int) -> Site | None:
        """Who made one call."""
        return self.interner.sites[self.interner.site_of_stack[int(self.tables[rank].stack[at])]]

    def stack(self, rank: int, at: int) -> tuple[Site, ...]:
        """The Python stack of one call, innermost first."""
        return self.interner.stacks[int(self.tables[rank].stack[at])]


def normalise(
    tables: Iterable[RankTable],
    interner: Interner,
    memberships: Sequence[Membership] = (),
    world_size: int | None = None,
    complaints: tuple[str, ...] = (),
) -> FlightEvidence:
    """Resolve groups to members, coalesced calls to sets, and gloo's `retired` to states.

    `world_size` is taken from the caller, else from the memberships, else from the dumps: the largest
    pg_config of the default group, or the highest rank that left a dump.
    """
    by_rank = {table.rank: table for table in tables}
    world = world_size or _world_size(by_rank.values(), memberships)
    for table in by_rank.values():
        drop_fingerprints(table, interner)
    groups = resolve_groups(by_rank, interner, memberships, world)
    for table in by_rank.values():
        _merge_coalesced(table, interner)
    outside = tuple(
        f"{t.file}: rank {t.rank} is outside the world of {world}, left out"
        for t in by_rank.values()
        if t.rank >= world
    )
    by_rank = {rank: table for rank, table in by_rank.items() if rank < world}
    rosters = {rank: roster(table, memberships, world) for rank, table in by_rank.items()}
    evidence = FlightEvidence(world, by_rank, groups, interner, complaints, rosters)
    # Where the newest records are lost a dump says nothing of where its rank stands: as good as none.
    lost = {r: why for r, t in by_rank.items() if (why := _lost_tail(evidence, t))}
    cut = tuple(f"{by_rank.pop(rank).file}: {why}, left out" for rank, why in lost.items())
    gaps = tuple(f"{t.file}: {t.gaps}; it convicts nobody" for t in by_rank.values() if t.gaps)
    evidence.complaints = (*complaints, *outside, *cut, *gaps)
    gloo = [table for table in by_rank.values() if table.backend == "gloo"]
    for table in gloo:
        table.state = _retired_but_last(table)
    for table in gloo:
        _settle_last(evidence, table)
        _settle_late(evidence, table)
    return evidence


def _lost_tail(evidence: FlightEvidence, table: RankTable) -> str | None:
    """Whether a dump is empty, or ends before what its own pg_status counts as enqueued."""
    if not len(table):
        return "holds no records"
    for number in np.unique(table.group).tolist():
        group = evidence.groups[number]
        counted = table.status.get(group.name, (0, 0))[0]
        newest = evidence.newest(table.rank, number)
        if counted > newest and not table.p2p[table.group == number].any():
            return f"ends at seq {newest} of {group.label}, but {counted} were enqueued"
    return None


def _world_size(tables: Iterable[RankTable], memberships: Sequence[Membership]) -> int:
    sizes = [max(m.members) + 1 for m in memberships if m.members]
    for table in tables:
        sizes.append(table.rank + 1)
        sizes.extend(max(members) + 1 for members in table.members.values())
    return max(sizes, default=0)


def _merge_coalesced(table: RankTable, interner: Interner) -> None:
    """Collectives that share one sequence number were issued as a set: one row with a set's signature."""
    if len(table) < 2:
        return
    same = (
        (table.seq[1:] == table.seq[:-1])
        & (table.group[1:] == table.group[:-1])
        & ~table.p2p[1:]
        & ~table.p2p[:-1]
    )
    if not same.any():
        return
    starts = np.concatenate(([True], ~same))
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(table)) - 1
    signature, state = table.signature[first].copy(), table.state[first].copy()
    for i in np.flatnonzero(last > first).tolist():
        part = table.signature[first[i] : last[i] + 1].tolist()
        signature[i] = interner.signature(_as_set([interner.signatures[s] for s in part]))
        state[i] = table.state[first[i] : last[i] + 1].max()
    for name in COLUMNS:
        setattr(table, name, getattr(table, name)[first])
    table.signature, table.state = signature, state


def _as_set(parts: list[Signature]) -> Signature:
    ordered = sorted(parts, key=lambda s: (s.op, s.input_sizes, s.output_sizes, s.input_dtypes))
    return replace(
        ordered[0],
        op="+".join(dict.fromkeys(s.op for s in ordered)),
        input_sizes=tuple(x for s in ordered for x in s.input_sizes),
        output_sizes=tuple(x for s in ordered for x in s.output_sizes),
        input_dtypes=tuple(x for s in ordered for x in s.input_dtypes),
        output_dtypes=tuple(x for s in ordered for x in s.output_dtypes),
    )


def _retired_but_last(table: RankTable) -> Column:
    """gloo: done when retired, but the last entry's retirement is no proof (its wait may have raised)."""
    state = np.where(table.retired, int(State.DONE), table.state).astype(np.int8)
    if len(state) and table.retired[-1]:
        state[-1] = int(State.UNKNOWN)
    return state


def _settle_last(evidence: FlightEvidence, table: RankTable) -> None:
    """An unknown last entry is done if every member has a dump with an equal entry there."""
    if not len(table) or table.state[-1] != State.UNKNOWN or table.p2p[-1]:
        return
    if _all_agree(evidence, table, len(table) - 1, evidence.groups[int(table.group[-1])].members):
        table.state[-1] = int(State.DONE)


def _settle_late(evidence: FlightEvidence, table: RankTable) -> None:
    """gloo's thread retires an operation after `wait()` returned: the next one may be recorded first."""
    for at in np.flatnonzero(table.state[:-1] == State.SCHEDULED).tolist():
        members = evidence.groups[int(table.group[at])].members
        others = tuple(m for m in members if m != table.rank)
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
