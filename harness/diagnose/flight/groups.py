"""Process groups and who belongs to them: stated, recorded by ranks, or filled from sister groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.flight.intern import Interner
from harness.diagnose.flight.table import RankTable

DEFAULT_GROUP = "default_pg"
_NO_DESCRIPTION = ("", "undefined")


@dataclass(frozen=True)
class Group:
    """One process group. `members` are global ranks in group order; empty where nothing says who they are."""

    name: str
    description: str
    members: tuple[int, ...]

    @property
    def label(self) -> str:
        """The description where there is one, else the name."""
        return self.name if self.description in _NO_DESCRIPTION else self.description

    @property
    def described(self) -> bool:
        """Whether sister groups can be told by a common description."""
        return self.description not in _NO_DESCRIPTION


@dataclass(frozen=True)
class Membership:
    """A group as some source outside the dumps knows it (ranks.json)."""

    name: str
    description: str
    members: tuple[int, ...]


def resolve_groups(
    tables: Mapping[int, RankTable],
    interner: Interner,
    memberships: Sequence[Membership],
    world: int,
) -> list[Group]:
    """Global groups; each table's `group` column is turned into their numbers.

    The default group is the whole world. Otherwise the rank map counts first, then the dump's own
    pg_config if description and membership fit, then who uses the group where no dump is missing.
    """
    used = {rank: np.unique(table.group).tolist() for rank, table in tables.items()}
    stated = {
        (rank, local): _stated(tables[rank], interner.groups[local], memberships, world)
        for rank, locals_ in used.items()
        for local in locals_
    }
    users: dict[int, list[int]] = {}
    for (rank, local), members in stated.items():
        if not members:
            users.setdefault(local, []).append(rank)
    inferred = _inferred(users, interner, set(tables), world)
    groups: list[Group] = []
    numbers: dict[Group, int] = {}
    for rank, table in tables.items():
        remap = np.zeros(len(interner.groups) or 1, dtype=np.int32)
        for local in used[rank]:
            name, description = interner.groups[local]
            group = Group(name, description, stated[rank, local] or inferred.get(local, ()))
            if group not in numbers:
                numbers[group] = len(groups)
                groups.append(group)
            remap[local] = numbers[group]
        table.group = remap[table.group]
    return groups


def _stated(
    table: RankTable, key: tuple[str, str], memberships: Sequence[Membership], world: int
) -> tuple[int, ...]:
    name, description = key
    if description == DEFAULT_GROUP or (name, description) == ("", ""):
        return tuple(range(world))
    for known in memberships:
        if (known.name, known.description) == (name, description) and table.rank in known.members:
            return known.members
    members = table.members.get((name, description), ())
    return members if table.rank in members else ()


def roster(table: RankTable, memberships: Sequence[Membership], world: int) -> tuple[Group, ...]:
    """All groups that the rank map or the rank's own pg_config states it belongs to."""
    mine = [m for m in memberships if table.rank in m.members]
    keys = {(m.name, m.description) for m in mine} | set(table.members)
    stated = ((key, _stated(table, key, memberships, world)) for key in sorted(keys))
    return tuple(Group(*key, members) for key, members in stated if members)


def _inferred(
    users: Mapping[int, list[int]], interner: Interner, seen: set[int], world: int
) -> dict[int, tuple[int, ...]]:
    """Members of groups that nothing states: their users, filled from sisters if only one way fits."""
    missing = sorted(set(range(world)) - seen)
    found = {local: tuple(sorted(ranks)) for local, ranks in users.items()}
    if not missing:
        return found
    by_description: dict[str, list[int]] = {}
    for local in found:
        by_description.setdefault(interner.groups[local][1], []).append(local)
    for description, sisters in by_description.items():
        size = max(len(found[local]) for local in sisters)
        short = [local for local in sisters if len(found[local]) < size]
        fits = len(sisters) > 1 and description not in _NO_DESCRIPTION and len(short) == 1
        if fits and size - len(found[short[0]]) == len(missing):
            found[short[0]] = tuple(sorted((*found[short[0]], *missing)))
    return found
