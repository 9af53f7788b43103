"""Whether a job moves: two samplings of the same main threads, compared. A moving job has no culprit."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass

from harness.diagnose.stacks.samples import RankStacks
from harness.diagnose.stacks.sites import position

MIN_SWITCHES_PER_S = 5.0
"""Measured on gloo: 0 in a collective that stands, hundreds in one that is repeated."""


@dataclass(frozen=True)
class Movement:
    """`compared`: ranks whose main thread was read in both samplings; `moved`: those whose changed."""

    compared: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()

    @property
    def moving(self) -> bool:
        """Whether most ranks moved: a single one that spins in its own code is no sign of progress."""
        return 2 * len(self.moved) > len(self.compared)

    def __or__(self, other: "Movement") -> "Movement":
        return Movement(self.compared | other.compared, self.moved | other.moved)


MOVING = "collect: moving"
STANDING = "collect: standing"
_STOOD = re.compile(re.escape(STANDING) + r" for (\d+(?:\.\d+)?) s")


def stood_s(notice: str | None) -> float | None:
    """How long a collected job is known to have stood, by its notice; None where it does not say."""
    found = _STOOD.match(notice or "")
    return float(found.group(1)) if found else None


def movement(
    first: Mapping[int, RankStacks],
    second: Mapping[int, RankStacks],
    switches_per_s: Mapping[int, float] | None = None,
) -> Movement:
    """Compare the main threads of two samplings.

    `switches_per_s`: how often each main thread went to sleep and woke between them. It tells a rank that
    is sampled twice in the same line of a quick loop from one that never left it. A rank that polls in a
    loop of its own looks as if it moved: with most ranks like that the job is taken to run, and nobody is
    accused.
    """
    compared, moved = set(), set()
    for rank in first.keys() & second.keys():
        before, after = _main(first[rank]), _main(second[rank])
        if not before or not after:
            continue
        compared.add(rank)
        works = (switches_per_s or {}).get(rank, 0.0) >= MIN_SWITCHES_PER_S
        if before != after or works:
            moved.add(rank)
    return Movement(frozenset(compared), frozenset(moved))


def _main(stacks: RankStacks) -> tuple[tuple[str, str, int], ...]:
    own = stacks.own
    return tuple((f.name, f.filename, f.line) for f in own.main) if own else ()


def communicating(stacks: Mapping[int, RankStacks]) -> Set[int]:
    """Ranks whose main thread is in a collective."""
    return {
        rank
        for rank, sample in stacks.items()
        if (own := sample.own) and own.main and position(own.main).doing == "communication"
    }
