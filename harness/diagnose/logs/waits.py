"""Who waits in what: watchdogs' timeouts and last works, a row for each rank and group."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.diagnose.logs.event import STRONG, Event, Group, RankFrom

UNNAMED = ""
"""The key of a group that nobody names."""

UNEVEN = ("GATHER", "SCATTER", "ALLTOALL", "ALL_TO_ALL", "SEND", "RECV", "COALESCED")
"""Operations whose members may have unequal sizes, and those that are no whole-group collectives."""

EVEN_GATHERS = ("ALLGATHER", "_ALLGATHER_BASE", "ALLGATHER_BASE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")


@dataclass(frozen=True)
class Wait:
    """One rank's own timeout in one group: the earliest number in which it waited.

    `began`: unix seconds on its file's clock, timeout minus what it ran; None without times.
    """

    rank: int
    key: str
    group: Group | None
    seq: int | None
    op: str | None
    sizes: tuple[int | str | None, ...]
    limit_ms: int | None
    ran_ms: int | None
    event: Event

    @property
    def lasted_s(self) -> float | None:
        """How long it had waited at its timeout, seconds: what it ran, else its limit."""
        lasted = self.ran_ms if self.ran_ms is not None else self.limit_ms
        return lasted / 1e3 if lasted is not None else None

    @property
    def began(self) -> float | None:
        """When it began to wait, unix seconds."""
        lasted = self.lasted_s
        return self.event.at - lasted if self.event.at is not None and lasted is not None else None

    @property
    def suspended(self) -> bool:
        """Whether it ran far beyond its limit: the process was stopped, and durations prove nothing."""
        return bool(self.ran_ms and self.limit_ms and self.ran_ms > 2 * self.limit_ms)

    @property
    def signature(self) -> tuple[object, ...]:
        """What the peers compare."""
        return self.op, self.sizes


@dataclass(frozen=True)
class Standing:
    """What one rank had enqueued and completed in one group, as it said itself."""

    rank: int
    key: str
    group: Group | None
    enqueued: int | None
    completed: int | None
    active: int | None
    event: Event
    work: int | None = None
    """The number of the work that its watchdog reports as stuck."""


@dataclass(frozen=True)
class Waits:
    """Everything that ranks say of their own collectives. Ranks are global and strongly known."""

    waits: Mapping[tuple[int, str], Wait] = field(default_factory=dict)
    standings: Mapping[tuple[int, str], Standing] = field(default_factory=dict)
    weak: tuple[Event, ...] = ()
    observers: frozenset[int] = frozenset()
    initiators: frozenset[int] = frozenset()
    first_signal: Event | None = None

    @cached_property
    def waiting(self) -> frozenset[int]:
        """Ranks with a timeout of their own."""
        return frozenset(rank for rank, _ in self.waits)

    def of_group(self, key: str) -> list[Wait]:
        """The waits in one group, by rank."""
        return sorted((w for (_, k), w in self.waits.items() if k == key), key=lambda w: w.rank)

    def stuck_groups(self) -> list[str]:
        """Groups in which somebody waits, the most waiting first."""
        counts = Counter(key for _, key in self.waits if key not in self.shared)
        return [key for key, _ in counts.most_common()]

    @cached_property
    def shared(self) -> frozenset[str]:
        """Names that several groups bear: two global ranks claim one place in them."""
        places: dict[tuple[str, int], set[int]] = defaultdict(set)
        groups = [(rank, key, wait.group) for (rank, key), wait in self.waits.items()]
        groups += [(rank, key, standing.group) for (rank, key), standing in self.standings.items()]
        for rank, key, group in groups:
            if group is not None and group.rank is not None:
                places[key, group.rank].add(rank)
        return frozenset(key for (key, _), ranks in places.items() if len(ranks) > 1)

    def standing(self, rank: int) -> list[Standing]:
        """All that a rank says of what it enqueued and completed."""
        return [s for (r, _), s in sorted(self.standings.items()) if r == rank]


def read_waits(events: Iterable[Event]) -> Waits:
    """Put together what ranks say. Of several timeouts of a rank in a group the earliest number counts."""
    waits: dict[tuple[int, str], Wait] = {}
    standings: dict[tuple[int, str], Standing] = {}
    weak: list[Event] = []
    observers, initiators = set[int](), set[int]()
    signals: list[Event] = []
    for event in events:
        if event.what == "dump_first":
            signals.append(event)
        if event.what not in ("watchdog_timeout", "progress", "active", "dump_first", "dump_observed"):
            continue
        rank = event.rank
        if rank is None or event.rank_from not in (*STRONG, RankFrom.CONTEXT):
            weak.append(event)
            continue
        key = event.group.uid if event.group else UNNAMED
        if event.what == "watchdog_timeout":
            wait = _wait(event, rank, key)
            known = waits.get((rank, key))
            if known is None or _earlier(wait, known):
                waits[rank, key] = wait
        elif event.what == "dump_first":
            initiators.add(rank)
        elif event.what == "dump_observed":
            observers.add(rank)
        else:
            _stand(standings, event, rank, key)
    waits = _with_groups(waits, standings)
    return Waits(
        waits,
        standings,
        tuple(weak),
        frozenset(observers),
        frozenset(initiators),
        min(signals, key=lambda e: (e.at is None, e.at or 0.0), default=None),
    )


def _wait(event: Event, rank: int, key: str) -> Wait:
    numbers, words = event.numbers, event.words
    sizes = (numbers.get("in"), numbers.get("out"), words.get("shape"))
    return Wait(
        rank, key, event.group, numbers.get("seq"), words.get("op"), sizes,
        numbers.get("limit_ms"), numbers.get("ran_ms"), event,
    )  # fmt: skip


def _with_groups(
    waits: Mapping[tuple[int, str], Wait], standings: Mapping[tuple[int, str], Standing]
) -> dict[tuple[int, str], Wait]:
    """A timeout's own line may not name its group; the line on its rank's progress at that number does."""
    told: dict[tuple[int, str], Wait] = {}
    grouped: dict[int, list[Standing]] = defaultdict(list)
    for (rank, key), standing in standings.items():
        if key != UNNAMED:
            grouped[rank].append(standing)
    with_group = {(r, w.seq) for (r, k), w in waits.items() if k != UNNAMED}
    for (rank, key), wait in waits.items():
        if key == UNNAMED:
            named = [
                s for s in grouped[rank] if s.work == wait.seq or (s.work is None and _stuck_at(s, wait.seq))
            ]
            if len(named) == 1:
                key, group = named[0].key, named[0].group
                told[rank, key] = _said_first(wait, waits.get((rank, key)), key, group)
                continue
            if (rank, wait.seq) in with_group:
                # The same timeout, said again with its group.
                continue
        if (rank, key) in told:
            continue
        told[rank, key] = wait if wait.seq is not None else told.get((rank, key), wait)
    return told


def _said_first(wait: Wait, again: Wait | None, key: str, group: Group | None) -> Wait:
    """A timeout whose own line does not name its group; `again`: the same one, repeated with its group."""
    if again is not None and again.seq != wait.seq:
        return again
    return dataclasses.replace(wait, key=key, group=group)


def _stuck_at(standing: Standing, seq: int | None) -> bool:
    return seq is not None and standing.completed is not None and standing.completed + 1 == seq


def _earlier(one: Wait, other: Wait) -> bool:
    if other.seq is None or one.seq is None:
        return other.seq is None and one.seq is not None
    return one.seq < other.seq


def _stand(standings: dict[tuple[int, str], Standing], event: Event, rank: int, key: str) -> None:
    numbers = event.numbers
    known = standings.get((rank, key))
    active = numbers.get("active", known.active if known else None)
    work = numbers.get("work", known.work if known else None)
    if "enqueued" not in numbers and known is None and active is None:
        return
    if known is not None and known.enqueued is not None and "enqueued" not in numbers:
        standings[rank, key] = Standing(
            rank, key, known.group, known.enqueued, known.completed, active, known.event, work
        )
        return
    standings[rank, key] = Standing(
        rank, key, event.group, numbers.get("enqueued"), numbers.get("completed"), active, event, work
    )


def group_size(waits: Sequence[Wait], world_size: int | None, given: Mapping[str, int]) -> int | None:
    """How many members a group has: the world, a stated layout, or what all-gathers' sizes say."""
    group = waits[0].group
    if group is not None and group.is_default:
        return world_size
    if group is not None and group.name in given:
        return given[group.name]
    ratios = set[int]()
    for wait in waits:
        small, large = sorted(n for n in wait.sizes[:2] if isinstance(n, int))[:2] if _both(wait) else (0, 0)
        if wait.op in EVEN_GATHERS and small and large % small == 0 and large > small:
            ratios.add(large // small)
    return ratios.pop() if len(ratios) == 1 else None


def _both(wait: Wait) -> bool:
    return sum(isinstance(n, int) for n in wait.sizes[:2]) == 2


def is_even(op: str | None) -> bool:
    """Whether all members of an operation must agree on its sizes."""
    return op is not None and (op in EVEN_GATHERS or not any(word in op for word in UNEVEN))


def by_seq(waits: Iterable[Wait]) -> dict[int, list[Wait]]:
    """Waits by their number; those without one are left out."""
    found: dict[int, list[Wait]] = defaultdict(list)
    for wait in waits:
        if wait.seq is not None:
            found[wait.seq].append(wait)
    return dict(found)


def common_op(waits: Iterable[Wait]) -> str:
    """The operation that most wait in."""
    ops = Counter(w.op for w in waits if w.op)
    return ops.most_common(1)[0][0] or "a collective" if ops else "a collective"
