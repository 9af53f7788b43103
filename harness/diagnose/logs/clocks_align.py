"""Clocks of many files put side by side by events that several of them saw. Bounds, never averages."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.diagnose.logs.clocks_file import INTERLEAVED_S, QUARTER_S, ZONE_S, Clock
from harness.diagnose.logs.clocks_solve import Interval, Sight, Sights, Solved, direct, meet, solve_group

MAX_UNCERTAINTY_S = 900.0
"""Two clocks whose difference is known no better than this are not compared at all."""


@dataclass(frozen=True)
class Anchor:
    """One event in one file; the same `key` in another file is the same event.

    `at` is on the file's own clock, give or take `precision_s`; all files wrote it within `spread_s` of one
    another. `what` names it for people ("step 1370"), `line` counts from 1.
    """

    key: str
    file: str
    at: float
    spread_s: float
    line: int = 0
    precision_s: float = 0.0
    what: str = ""


@dataclass(frozen=True)
class Event:
    """Something to be ordered: `at` on the file's own clock, give or take `precision_s`; None if unknown."""

    file: str
    at: float | None
    precision_s: float = 0.0
    what: str = ""


@dataclass(frozen=True)
class First:
    """`sole` is first beyond doubt; otherwise None, and `candidates` are all that may be."""

    sole: Event | None
    candidates: tuple[Event, ...]


@dataclass(frozen=True)
class Offset:
    """How far a file's clock runs ahead of its reference's, and how that was found.

    The difference lies in `offset_s` plus or minus `uncertainty_s`. `zone_s` is the multiple of a quarter
    hour in it (a difference of zones), 0 if none. `contradiction_s`: what its anchors span where they
    exclude one another; 0 if they agree. `how`: the event with its lines in both files, for people.
    """

    file: str
    reference: str
    offset_s: float
    uncertainty_s: float
    zone_s: float
    contradiction_s: float
    how: str


_Seen = dict[str, dict[str, Sight]]


@dataclass(frozen=True)
class Alignment:
    """Which clocks can be compared, and how exactly. Built by `align`."""

    offsets: Mapping[str, Offset]
    notes: tuple[str, ...]
    _bounds: Mapping[str, Interval] = field(repr=False)
    _slack: Mapping[str, float] = field(repr=False)
    _by_file: Sights = field(repr=False)

    def comparable(self, file_a: str, file_b: str) -> bool:
        """Whether times of the two files may be compared at all."""
        return self.uncertainty_s(file_a, file_b) <= MAX_UNCERTAINTY_S

    def uncertainty_s(self, file_a: str, file_b: str) -> float:
        """Half the width of what is known of the difference of two clocks; infinite if nothing is."""
        low, high = self.difference(file_a, file_b)
        return (high - low) / 2 if math.isfinite(high - low) else math.inf

    def difference(self, file_a: str, file_b: str) -> tuple[float, float]:
        """Least and greatest seconds by which `file_b` may run ahead of `file_a`."""
        slack = self._slack.get(file_a, 0.0) + self._slack.get(file_b, 0.0)
        if file_a == file_b:
            return (-slack / 2, slack / 2)
        a, b = self.offsets.get(file_a), self.offsets.get(file_b)
        if a is None or b is None or a.reference != b.reference:
            return (-math.inf, math.inf)
        (low_a, high_a), (low_b, high_b) = self._bounds[file_a], self._bounds[file_b]
        known = (low_b - high_a, high_b - low_a)
        told = direct(self._by_file[file_a], self._by_file[file_b], slack)
        if told is None:
            return known
        both = meet(known, told)
        return both if both is not None else (min(known[0], told[0]), max(known[1], told[1]))

    def common(self, file: str, at: float) -> float | None:
        """A file's time on the clock of its reference; None if no other file is tied to it."""
        offset = self.offsets.get(file)
        if offset is None or offset.uncertainty_s > MAX_UNCERTAINTY_S:
            return None
        return at - offset.offset_s

    def first(self, events: Sequence[Event]) -> First:
        """The event before all others by more than the doubt; else every one that no other precedes so.

        Events without a time, or on clocks that cannot be compared, may always be first.
        """
        ahead = {
            (a, b): self.difference(a, b)[1]
            for a in {event.file for event in events}
            for b in {event.file for event in events}
            if self.comparable(a, b)
        }
        candidates = tuple(e for e in events if not any(_precedes(other, e, ahead) for other in events))
        return First(candidates[0] if len(candidates) == 1 else None, candidates)


def align(
    clocks: Mapping[str, Clock], anchors: Sequence[Anchor], hosts: Mapping[str, str] | None = None
) -> Alignment:
    """Puts clocks side by side. Files of one host share a clock if both or neither tell their zone.

    Every anchor bounds the difference of two clocks. Bounds that exclude one another mean that a clock
    jumped or that an event was not one: the times of the file in question then count give or take the whole
    disagreement. Files without an anchor are not comparable with any other.
    """
    usable = {name: clock for name, clock in clocks.items() if clock.basis != "none"}
    seen = _sightings(usable, anchors)
    _same_hosts(usable, hosts or {}, seen)
    by_file: dict[str, dict[str, Sight]] = {name: {} for name in clocks}
    for key, files in seen.items():
        for name, sight in files.items():
            by_file[name][key] = sight
    slack = {name: clock.jump_s for name, clock in clocks.items()}
    offsets: dict[str, Offset] = {}
    bounds: dict[str, Interval] = {}
    notes: list[str] = []
    groups = _groups(by_file, seen)
    for group in groups:
        solved = solve_group(group, clocks, by_file, seen, slack)
        if not solved.bounds:
            notes.append(f"the clocks of {', '.join(group)} contradict one another: none of them is compared")
        found = [_offset(name, solved, seen, clocks) for name in solved.bounds]
        notes.extend(_sentence(offset) for offset in found if offset.file != offset.reference)
        offsets.update((offset.file, offset) for offset in found)
        bounds.update(solved.bounds)
        slack.update(solved.slack)
    tied = {name for group in groups for name in group}
    notes.extend(
        f"{name}: no event ties its clock to another file's; its times order only its own lines"
        for name in sorted(clocks.keys() - tied)
        if len(clocks) > 1
    )
    return Alignment(offsets, tuple(notes), bounds, slack, by_file)


def _sightings(clocks: Mapping[str, Clock], anchors: Sequence[Anchor]) -> _Seen:
    """Anchors by event and file. An event said several times in one file lies somewhere among them."""
    told: defaultdict[str, defaultdict[str, list[Anchor]]] = defaultdict(lambda: defaultdict(list))
    for anchor in anchors:
        if anchor.file in clocks and math.isfinite(anchor.at + anchor.spread_s + anchor.precision_s):
            told[anchor.key][anchor.file].append(anchor)
    seen: _Seen = {}
    for key, files in sorted(told.items()):
        if len(files) < 2:
            continue
        # Within `spread_s` of one another is within half of it of some common moment (Helly, on a line).
        half = max(a.spread_s for said in files.values() for a in said) / 2
        seen[key] = {}
        for name, said in sorted(files.items()):
            low = min(a.at - a.precision_s for a in said)
            high = max(a.at + a.precision_s for a in said)
            first = min(said, key=lambda a: a.at)
            seen[key][name] = Sight((low + high) / 2, half + (high - low) / 2, first.line, first.what)
    return seen


def _same_hosts(clocks: Mapping[str, Clock], hosts: Mapping[str, str], seen: _Seen) -> None:
    """One clock a host. A guessed day, or a zone in one file alone, ties nothing."""
    for name, clock in sorted(clocks.items()):
        if name in hosts and clock.basis in ("unix", "boot") and clock.date != "outside":
            zone = "with zone" if clock.zone else "without zone"
            dated = "year" if clock.date != "unknown" else "no year"
            key = f"\0host {hosts[name]}: {clock.basis}, {zone}, {dated}"
            members = seen.setdefault(key, {})
            if any(_apart(name, other, seen) for other in members):
                continue
            members[name] = Sight(0.0, 0.0, 0, f"both of host {hosts[name]}")


def _groups(by_file: Sights, seen: Sights) -> list[list[str]]:
    """Files that events connect, directly or through others; files alone are left out."""
    left = dict.fromkeys(sorted(by_file))
    groups: list[list[str]] = []
    while left:
        todo = [next(iter(left))]
        del left[todo[0]]
        group: list[str] = []
        while todo:
            name = todo.pop()
            group.append(name)
            for key in by_file[name]:
                for other in seen[key]:
                    if other in left:
                        del left[other]
                        todo.append(other)
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _apart(name: str, other: str, seen: Sights) -> bool:
    """Whether events say that two files of one host do not show one clock: containers of two zones."""
    a = {key: files[name] for key, files in seen.items() if name in files and other in files}
    b = {key: files[other] for key, files in seen.items() if name in files and other in files}
    told = direct(a, b, 0.0)
    return told is not None and not told[0] <= 0 <= told[1]


def _offset(name: str, solved: Solved, seen: Sights, clocks: Mapping[str, Clock]) -> Offset:
    low, high = solved.bounds[name]
    offset_s, uncertainty_s = (low + high) / 2, (high - low) / 2
    zone_s = round(offset_s / QUARTER_S) * QUARTER_S
    calendars = clocks[name].basis == clocks[solved.reference].basis == "unix"
    if not calendars or abs(offset_s - zone_s) > INTERLEAVED_S or abs(zone_s) > 2 * ZONE_S:
        zone_s = 0
    how = "the reference"
    if name in solved.via:
        key, partner = solved.via[name]
        here, there = seen[key][name], seen[key][partner]
        how = f"{here.what or there.what or key} at {_spot(partner, there)} and {_spot(name, here)}"
        if not here.line and not there.line and here.width == there.width == 0:
            how = here.what
    doubt = solved.slack[name] - clocks[name].jump_s
    return Offset(name, solved.reference, offset_s, uncertainty_s, float(zone_s), doubt, how)


def _spot(name: str, sight: Sight) -> str:
    return f"{name}:{sight.line}" if sight.line else name


def _sentence(offset: Offset) -> str:
    """An offset for people."""
    way = "ahead of" if offset.offset_s >= 0 else "behind"
    zone = f", {offset.zone_s / 3600:+g} h of it a zone" if offset.zone_s else ""
    text = (
        f"{offset.file} runs {abs(offset.offset_s):.1f} s {way} {offset.reference} "
        f"(within {offset.uncertainty_s:.1f} s{zone}): {offset.how}"
    )
    if offset.contradiction_s > 0:
        text += f"; its events disagree, so its times count give or take {offset.contradiction_s:.1f} s"
    return text


def _precedes(a: Event, b: Event, ahead: Mapping[tuple[str, str], float]) -> bool:
    if a.at is None or b.at is None or (a.file, b.file) not in ahead:
        return False
    return a.at + a.precision_s < b.at - b.precision_s - ahead[a.file, b.file]
