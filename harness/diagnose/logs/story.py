"""All that the logs of one job say, with ranks placed and clocks compared: what the rules look at."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.diagnose.logs.census import Census, agents_of
from harness.diagnose.logs.clocks import Alignment, Anchor, Clock, FileClock, align
from harness.diagnose.logs.clocks import Event as Dated
from harness.diagnose.logs.event import Event, RankFrom
from harness.diagnose.logs.reader import FileLog
from harness.diagnose.logs.stamps import read_stamp, slurm_time
from harness.diagnose.logs.waits import Waits, read_waits

TOGETHER_S = 60.0
"""Watchdogs of one collective, and dumps that one signal asks for, come within this of one another."""

OTHER_RUN_S = 16 * 3600.0
"""Zones differ by less: files that lie further apart are of two runs."""

BEFORE_ALL = -1
DATED = ("own", "year")
"""Clocks whose day is their own; others took it from outside."""

STEP_SPREAD_S = 30.0
WENT_ON_STEPS = 2
LONG_STEP_S, CLOCKS_S = 30.0, 2.0
"""A step of unknown length counts as so long; clocks that were tied by steps differ by so much at most."""


@dataclass(frozen=True)
class Story:
    """One attempt, and what came before it.

    `events`: of the last attempt, placed and dated, in the order of files and lines. `earlier`: of attempts
    before. `layout`: sizes of named groups, as stated.
    """

    census: Census
    events: tuple[Event, ...]
    earlier: Mapping[int, tuple[Event, ...]]
    attempt: int
    alignment: Alignment
    clocks: Mapping[str, Clock]
    waits: Waits
    files: Mapping[str, FileLog] = field(default_factory=dict)
    layout: Mapping[str, int] = field(default_factory=dict)

    @property
    def world_size(self) -> int | None:
        """As stated or given."""
        return self.census.world_size

    @property
    def everybody(self) -> tuple[int, ...]:
        """All ranks, as far as known."""
        return tuple(range(self.census.size))

    @cached_property
    def _by_what(self) -> Mapping[str, Sequence[tuple[int, Event]]]:
        found: dict[str, list[tuple[int, Event]]] = {}
        for index, event in enumerate(self.events):
            found.setdefault(event.what, []).append((index, event))
        return found

    @cached_property
    def _by_rank(self) -> Mapping[int, Sequence[Event]]:
        found: dict[int, list[Event]] = {}
        for event in self.events:
            if event.rank is not None:
                found.setdefault(event.rank, []).append(event)
        return found

    @cached_property
    def _steps(self) -> Mapping[tuple[str, int], Event]:
        """Each rank's last step line in each file."""
        last = [e for e in self.of("step") if e.rank is not None and e.rank_from is not RankFrom.CONTEXT]
        return {(e.file, e.rank): e for e in sorted(last, key=lambda e: e.line) if e.rank is not None}

    def of(self, *whats: str) -> list[Event]:
        """The last attempt's events of some classes, in the order of files and lines."""
        found = [pair for what in whats for pair in self._by_what.get(what, ())]
        if len(whats) > 1:
            found.sort(key=lambda pair: pair[0])
        return [event for _, event in found]

    def of_rank(self, rank: int, *whats: str) -> Sequence[Event]:
        """The last attempt's events of one rank, of some classes if any are given."""
        own = self._by_rank.get(rank, ())
        if not whats:
            return own
        key = (rank, whats)
        if key not in self._spoken:
            self._spoken[key] = tuple(event for event in own if event.what in whats)
        return self._spoken[key]

    @cached_property
    def _spoken(self) -> dict[tuple[int, tuple[str, ...]], Sequence[Event]]:
        return {}

    def others(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Everybody but some ranks."""
        left = set(ranks)
        return tuple(r for r in self.everybody if r not in left)

    def before(self, one: Event, other: Event) -> bool | None:
        """Whether one event came before another; None if nothing tells. Lines of one file are in order."""
        if one.file == other.file:
            if one.what == "block_exit" or other.what == "block_exit":
                return self._by_time(one, other)
            return one.line < other.line
        return self._by_time(one, other)

    def _by_time(self, one: Event, other: Event) -> bool | None:
        if one.at is None or other.at is None:
            return None
        apart = self._apart(one.file, other.file)
        if apart is None:
            return None
        # How far the other's clock may run ahead; each time counts give or take its precision.
        doubt = one.precision_s + other.precision_s
        low, high = apart
        if other.at - one.at > doubt + high:
            return True
        return False if one.at - other.at > doubt - low else None

    def _apart(self, file: str, other: str) -> tuple[float, float] | None:
        """Least and most by which the other file's clock runs ahead; None if they are not comparable."""
        key = (file, other)
        if key not in self._differences:
            known = self.alignment.comparable(file, other)
            self._differences[key] = self.alignment.difference(file, other) if known else None
        return self._differences[key]

    @cached_property
    def _differences(self) -> dict[tuple[str, str], tuple[float, float] | None]:
        return {}

    def seconds_between(self, one: Event, other: Event) -> float | None:
        """How many seconds after one event another came, about; None if their clocks cannot be compared."""
        if one.at is None or other.at is None:
            return None
        if one.file == other.file:
            return other.at - one.at
        apart = self._apart(one.file, other.file)
        if apart is None:
            return None
        low, high = apart
        return other.at - one.at - (low + high) / 2

    def common_time(self, event: Event) -> float | None:
        """An event's time on the reference clock, for a timeline; its own file's where there is no other."""
        if event.at is None:
            return None
        common = self.alignment.common(event.file, event.at)
        return common if common is not None else event.at

    def later_step(self, event: Event) -> Event | None:
        """A step that shows that a rank, or the job, went on after an event.

        The rank's own next step, or one of anybody's that is two further on: steps are made together, and
        one rank prints them for all. A completed training counts as well.
        """
        step = self._steps.get((event.file, event.rank)) if event.rank is not None else None
        if step is not None and step.line > event.line:
            return step
        for other in self._steps_in.get(event.file, ()):
            if other.line > event.line and other.numbers["step"] >= self._before(event) + WENT_ON_STEPS:
                return other
        if event.precision_s <= TOGETHER_S:
            for file, steps in self._steps_in.items():
                if file != event.file and self._far_after(event, steps[-1]):
                    return steps[-1]
        return next((e for e in self.of("completed") if self.before(event, e) is True), None)

    def _before(self, event: Event) -> int:
        """The last step before an event in its file; the first behind it, if there was none."""
        if event.after_step is not None:
            return event.after_step
        behind = [e.numbers["step"] for e in self._steps_in[event.file] if e.line > event.line]
        return min(behind)

    @cached_property
    def _steps_in(self) -> Mapping[str, Sequence[Event]]:
        """The first and last step lines of each file's speakers, in the order of lines."""
        found: dict[str, list[Event]] = {}
        for step in self.of("step"):
            found.setdefault(step.file, []).append(step)
        return found

    def _far_after(self, event: Event, step: Event) -> bool:
        """Whether a step of another file came so late after an event that two were made in between."""
        if event.at is None or step.at is None or step.precision_s > TOGETHER_S:
            return False
        seconds = self.seconds_between(event, step)
        usual = step.numbers["step_ms"] / 1e3 if "step_ms" in step.numbers else LONG_STEP_S
        return seconds is not None and seconds > WENT_ON_STEPS * usual + CLOCKS_S


def _dated(event: Event) -> Dated:
    return Dated(event.file, event.at, event.precision_s, event.place)


def tell(
    logs: Sequence[FileLog], census: Census, mtimes: Mapping[str, float], layout: Mapping[str, int]
) -> Story:
    """Place and date all events, split attempts, compare clocks. `mtimes`: when files were last written."""
    clocks = _clocks(logs, mtimes)
    placed = [
        event.placed(*census.place(event), *_date(event, clocks[log.file.name]))
        for log in logs
        for event in log.events
    ]
    alignment = align(clocks, _anchors(placed), _same_host(logs, census))
    last = max((log.attempts - 1 for log in logs), default=0)
    of_attempt: dict[int, list[Event]] = {}
    by_name = {log.file.name: log for log in logs}
    begins = _beginnings(logs, clocks)
    completed = {event.attempt for event in placed if event.what == "completed"}
    for event in placed:
        attempt = event.attempt
        own = by_name[event.file]
        if last and own.attempts == 1 and own.file.attempt is None:
            # An attempt that came to a good end is not the one that a launcher complains of.
            unknown = last - 1 if last in completed else last
            attempt = _attempt_by_time(event, begins, alignment, unknown)
        of_attempt.setdefault(attempt, []).append(event)
    for event in _of_other_days(of_attempt.get(last, ()), clocks, alignment):
        of_attempt[last].remove(event)
        of_attempt.setdefault(BEFORE_ALL, []).append(event)
    events = tuple(of_attempt.pop(last, ()))
    earlier = {attempt: tuple(found) for attempt, found in sorted(of_attempt.items())}
    return Story(census, events, earlier, last, alignment, clocks, read_waits(events), by_name, layout)


def _clocks(logs: Sequence[FileLog], mtimes: Mapping[str, float]) -> dict[str, Clock]:
    """Each file's clock; years and days that one file leaves out come from another's."""
    fed: dict[str, FileClock] = {}
    for log in logs:
        clock = fed[log.file.name] = FileClock()
        for number, stamp in log.stamps:
            clock.feed(number, stamp)
    clocks = {name: clock.resolve(None, mtimes.get(name)) for name, clock in fed.items()}
    dated = [c.moments[-1].at for c in clocks.values() if c.date == "own" and c.basis == "unix" and c.moments]
    near = max((at for at in dated if at is not None), default=None)
    if near is None:
        return clocks
    return {
        name: clock if clock.date == "own" else fed[name].resolve(near, mtimes.get(name))
        for name, clock in clocks.items()
    }


def _date(event: Event, clock: Clock) -> tuple[float | None, float]:
    """When an event was, and how exactly that is known."""
    if event.what == "block_exit" and (stamp := read_stamp(event.words.get("time", ""))) is not None:
        return stamp.seconds, 1.0
    moment = clock.at(event.line)
    vague = moment.at is None or moment.precision_s > TOGETHER_S
    if event.what == "cancelled" and vague and (stamp := slurm_time(event.text)) is not None:
        return stamp.seconds, 1.0
    if moment.at is None or clock.basis not in ("unix", "day"):
        return event.at, event.precision_s
    return moment.at, moment.precision_s


def _anchors(events: Iterable[Event]) -> list[Anchor]:
    """Events that several files saw."""
    anchors: list[Anchor] = []
    first_signal: dict[tuple[str, int], Event] = {}
    for event in events:
        if event.at is None or event.precision_s > TOGETHER_S:
            continue
        key, spread = "", TOGETHER_S
        if event.what == "watchdog_timeout" and "seq" in event.numbers:
            group = event.group.uid if event.group else ""
            key = f"timeout {group} {event.numbers['seq']} {event.attempt}"
        elif event.what in ("dump_first", "dump_observed"):
            first_signal.setdefault((event.file, event.attempt), event)
            continue
        elif event.what == "step":
            key, spread = f"step {event.numbers['step']} {event.attempt}", STEP_SPREAD_S
        elif event.what == "cancelled":
            key, spread = f"cancelled {event.attempt}", 5.0
        if key:
            anchors.append(_anchor(key, event, spread))
    anchors += [_anchor(f"dump signal {a}", event, TOGETHER_S) for (_, a), event in first_signal.items()]
    return anchors


def _anchor(key: str, event: Event, spread: float) -> Anchor:
    assert event.at is not None
    what = key.rsplit(" ", 1)[0]
    return Anchor(key, event.file, event.at, spread, event.line, event.precision_s, what)


def _same_host(logs: Sequence[FileLog], census: Census) -> dict[str, str]:
    """Files that were written on one machine, whose clocks are one."""
    hosts = dict(census.file_hosts)
    one_agent = len(census.shifts) > 0 and set(census.shifts.values()) == {0} and not census.unplaced
    machines = set(hosts.values()) | set(census.hosts.values())
    for log in logs:
        name = log.file.name
        if name in hosts:
            continue
        if log.file.rank is not None and log.file.rank in census.hosts:
            hosts[name] = census.hosts[log.file.rank]
        elif one_agent and len(machines) <= 1:
            hosts[name] = next(iter(machines), "the only machine")
        elif log.file.local_rank is not None:
            hosts[name] = agents_of(name, None, None)[0]
    return hosts


def _of_other_days(events: Sequence[Event], clocks: Mapping[str, Clock], alignment: Alignment) -> list[Event]:
    """Events of files that had ended long before others began, tied to them by nothing: another run's."""
    spans: dict[str, tuple[float, float]] = {}
    for name in {event.file for event in events}:
        clock = clocks[name]
        times = [m.at for m in clock.moments if m.at is not None]
        if clock.basis == "unix" and clock.date in DATED and times:
            spans[name] = (min(times), max(times))
    ended, cut = None, None
    for begin, end in sorted(spans.values()):
        if ended is not None and begin - ended > OTHER_RUN_S:
            cut = begin
        ended = max(ended or end, end)
    if cut is None:
        return []
    old = {name for name, (_, end) in spans.items() if end < cut}
    tied = {a for a in old for b in spans.keys() - old if alignment.comparable(a, b)}
    return [event for event in events if event.file in old - tied]


def _beginnings(logs: Sequence[FileLog], clocks: Mapping[str, Clock]) -> dict[int, Dated]:
    """When each attempt began, as the first file that tells says."""
    found: dict[int, Dated] = {}
    for log in logs:
        for attempt, line in log.restarts:
            moment = clocks[log.file.name].at(line)
            if moment.at is not None and attempt not in found:
                found[attempt] = Dated(log.file.name, moment.at, moment.precision_s)
    return found


def _attempt_by_time(event: Event, begins: Mapping[int, Dated], alignment: Alignment, last: int) -> int:
    """The attempt in which a file without marks of its own spoke; the last one where nothing tells."""
    mine = _dated(event)
    after = [a for a, begin in begins.items() if alignment.first((begin, mine)).sole is begin]
    before = [a for a, begin in begins.items() if alignment.first((begin, mine)).sole is mine]
    if after:
        return max(after)
    return min(before) - 1 if before else last
