"""What a case of the log corpus is: events on ranks in time, a dress that writes them, a known answer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.diagnose.logs.cases.incident import Incident


@dataclass(frozen=True)
class Group:
    """A process group. `tag` numbers it as torch does; `members` are global ranks."""

    members: tuple[int, ...]
    tag: int = 0
    name: str = "default_pg"

    @property
    def default(self) -> bool:
        return self.name == "default_pg"

    def rank_in(self, rank: int) -> int:
        return self.members.index(rank)


@dataclass(frozen=True)
class Dress:
    """How the same events are written.

    `layout`: one file for each of `ranks`, `nodes`, or `one` for all. `prefix`: what the collector puts in
    front of a line. `era`: new (torch 2.6 and later), half (2.4), mid (2.2: no times in C++ lines),
    old (1.12).
    """

    name: str
    layout: str = "ranks"
    prefix: str = "none"
    launcher: str = "torchrun"
    era: str = "new"
    framework: str = "titan"
    stamp: bool = False
    colour: str = "none"
    doubled: bool = False
    wrapped: bool = False
    shuffled: bool = False
    reverse_names: bool = False
    glued: bool = False


@dataclass(frozen=True)
class Expect:
    """The only answers that the rules allow.

    `kinds`: the accepted kinds, the best first. `culprits`: who must be convicted. `suspects`: who must be
    among the suspects. `either`: who must be accused, as culprit or as suspect. `guilty`: who really did it,
    and may be convicted when evidence is lost; by default all of the above that are certain.
    """

    kind: str
    culprits: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    either: tuple[int, ...] = ()
    or_kinds: tuple[str, ...] = ()
    site: str | None = None
    how: str | None = None
    signal: str | None = None
    hosts: tuple[str, ...] = ()
    missing: str | None = None
    in_chain: str | None = None
    last_step: bool = False
    next_steps: bool = False
    guilty: tuple[int, ...] = ()
    expected_ranks: int | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.kind, *self.or_kinds)

    @property
    def may_convict(self) -> frozenset[int]:
        """Nobody outside of these is ever a culprit, whatever evidence is lost."""
        return frozenset((*self.culprits, *self.either, *self.guilty))


@dataclass(frozen=True)
class Case:
    """One incident with a known answer. `rule` names the rules of DIAGNOSIS.md that it follows from."""

    name: str
    rule: str
    expect: Expect
    tell: Callable[["Incident"], None]
    dresses: tuple[str, ...]
    world: int = 8
    per_node: int = 8
    quiet: bool = False
    large: bool = False
    lost: tuple[int, ...] = field(default=())

    def build(self, dress: Dress) -> dict[str, bytes]:
        """File name -> bytes, as the dress writes this incident."""
        return self.incident(dress).files()

    def incident(self, dress: Dress) -> "Incident":
        """The events, not yet written."""
        from tests.diagnose.logs.cases.incident import Incident

        incident = Incident(dress, self.world, self.per_node, self.quiet, self.lost)
        self.tell(incident)
        return incident
