"""One file's clock: years, days and zones that its stamps leave out, and times of lines without a stamp."""

import math
from bisect import bisect_left
from calendar import timegm
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import gmtime

from harness.diagnose.logs.stamps import DAY_S, Stamp

INTERLEAVED_S = 60.0
"""Writers of one file overtake one another by this much; a smaller step back means nothing."""

ZONE_S = 14 * 3600
_UNEVEN_H = (-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)
ZONES_S = tuple(sorted(round(h * 3600) for h in (*range(-12, 15), *_UNEVEN_H)))
"""Offsets from UTC that are in use somewhere (IANA time zone database)."""

MIN_CHANGES = 4
"""So many changes between the two kinds of times prove a zone; fewer may be a late writer's."""

QUARTER_S = 900
"""Every zone in use is a multiple of a quarter hour, fourteen hours at most."""

COPIED_S = 2 * DAY_S
"""A file's last line may lie this far after the time at which it was seen to end: zones, and clocks."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a line was written, on its file's own clock, give or take `precision_s`.

    `at` is None where nothing tells. `how` is for people. `line` is the one whose stamp was used, 0 if none.
    """

    at: float | None
    precision_s: float
    how: str
    line: int


_UNKNOWN = Moment(None, math.inf, "no line of this file has a time", 0)


@dataclass(frozen=True)
class Clock:
    """A file's stamps, resolved.

    `basis`: unix (zone unknown: taken as UTC, then `zone` is False), day (seconds after the first day's
    midnight: no date anywhere), boot, none. `date`: own, year (only the year was taken from outside), outside
    (the day too), unknown.
    `jump_s`: the largest step back that looks like a change of zone; its times count give or take as much.
    """

    basis: str
    zone: bool
    date: str
    moments: tuple[Moment, ...]
    jump_s: float = 0.0
    notes: tuple[str, ...] = ()
    ended: float | None = None
    _lines: tuple[int, ...] = field(default=(), repr=False)
    _bearing: tuple[Moment, ...] = field(default=(), repr=False)

    def at(self, line: int) -> Moment:
        """A line's own stamp, or the last one before it with the gap to the next as its precision.

        With nothing on one side the precision is infinite.
        """
        index = bisect_left(self._lines, line)
        if index < len(self._lines) and self._lines[index] == line:
            return self.moments[index]
        after = bisect_left(self._bearing, line, key=lambda m: m.line)
        later = self._bearing[after] if after < len(self._bearing) else None
        if after == 0:
            if later is None:
                return _UNKNOWN
            return Moment(later.at, math.inf, f"not after line {later.line}", later.line)
        last = self._bearing[after - 1]
        assert last.at is not None
        ends = later.at if later else self.ended
        if ends is None or ends < last.at - INTERLEAVED_S:
            return Moment(last.at, math.inf, f"inherits from line {last.line}: nothing after it", last.line)
        gap = abs(ends - last.at) + last.precision_s + (later.precision_s if later else 0.0)
        return Moment(last.at, gap, f"inherits from line {last.line}", last.line)


@dataclass
class _Point:
    line: int
    stamp: Stamp
    at: float | None = None
    precision_s: float = 0.0
    how: str = "stamp"

    @property
    def subject(self) -> bool:
        """Times that an agent or a scheduler reports: not when the line was written."""
        return self.stamp.style in ("torchrun", "slurm")


class FileClock:
    """Collects the stamps of one file, line by line; `resolve` gives its clock."""

    def __init__(self) -> None:
        self._fed: dict[int, Stamp] = {}

    def feed(self, line_number: int, stamp: Stamp | None) -> None:
        """Takes the stamp of a line, counted from 1; lines without one may be left out."""
        if stamp is not None and math.isfinite(stamp.seconds):
            self._fed[line_number] = stamp

    def resolve(self, near: float | None = None, not_after: float | None = None) -> Clock:
        """The file's clock. Missing years and days come from its own dated lines, else from outside.

        `near`: a time of the same job, from another file; `not_after`: when the file was last written (its
        mtime). Both unix seconds. Without either, a year stays unknown and a day counts from 0.
        """
        points = [
            _Point(line, stamp, precision_s=stamp.precision_s) for line, stamp in sorted(self._fed.items())
        ]
        notes: list[str] = []
        if points and all(p.stamp.style == "kernel" for p in points):
            for p in points:
                p.at, p.how = p.stamp.seconds, "seconds since boot"
            return _clock(points, "boot", False, "unknown", notes, None)
        points = [p for p in points if p.stamp.style != "kernel"]
        if not points:
            return _clock(points, "none", False, "unknown", notes, None)
        date = _years(points, near, not_after)
        basis = "unix"
        if all(not p.stamp.dated for p in points):
            date = "unknown" if near is None and not_after is None else "outside"
            basis = "day" if date == "unknown" else "unix"
        _days(points, near, not_after, notes)
        zone = _zones(points, notes)
        _scheduler(points)
        return _clock(points, basis, zone, date, notes, not_after if zone else None)


def _clock(
    points: Sequence[_Point], basis: str, zone: bool, date: str, notes: list[str], ended: float | None
) -> Clock:
    jump_s = _jump(points, notes)
    moments = tuple(Moment(p.at, p.precision_s, p.how, p.line) for p in points)
    bearing = tuple(m for m, p in zip(moments, points, strict=True) if not p.subject and m.at is not None)
    # A file that only ever speaks of reported times has no better ones.
    bearing = bearing or tuple(m for m in moments if m.at is not None)
    lines = tuple(p.line for p in points)
    return Clock(basis, zone, date, moments, jump_s, tuple(notes), ended, lines, bearing)


def _years(points: Sequence[_Point], near: float | None, not_after: float | None) -> str:
    """Gives every dated stamp its year, outwards from those that have one. Returns the date's source."""
    dated = [p for p in points if p.stamp.dated]
    for p in dated:
        if p.stamp.has_year:
            p.at = p.stamp.seconds
    source = "own"
    if dated and all(p.at is None for p in dated):
        last = dated[-1]
        if near is not None:
            last.at = _nearest(last.stamp.seconds, near)
        elif not_after is not None:
            last.at = _nearest(last.stamp.seconds, not_after, latest=not_after + COPIED_S)
        source = "unknown" if last.at is None else "year"
        last.at = last.stamp.seconds if last.at is None else last.at
        last.how = "year unknown" if source == "unknown" else "year from outside this file"
    for order in (dated, dated[::-1]):
        known: _Point | None = None
        for p in order:
            if p.at is None and known is not None and known.at is not None:
                p.at = _nearest(p.stamp.seconds, known.at)
                p.how = f"year from line {known.line}"
            known = p if p.at is not None else known
    return source


def _nearest(yearless: float, target: float, latest: float = math.inf) -> float | None:
    """A month, day and time in the year that brings it nearest to `target`; None if no such day is."""
    parts = gmtime(math.floor(yearless))
    fraction = yearless - math.floor(yearless)
    found: list[float] = []
    year = gmtime(min(max(target, 0.0), 4e9)).tm_year
    # A leap day may be four years from the nearest year that has one.
    for candidate in range(year - 4, year + 5):
        at = timegm((candidate, *parts[1:6])) + fraction
        if gmtime(math.floor(at))[1:3] == parts[1:3] and at <= latest:
            found.append(at)
    return min(found, key=lambda at: abs(at - target), default=None)


def _days(points: list[_Point], near: float | None, not_after: float | None, notes: list[str]) -> None:
    """Puts times of day on days: counted inside a run of them, tied to the dated stamps around the run."""
    start = 0
    while start < len(points):
        end = start
        while end < len(points) and not points[end].stamp.dated:
            end += 1
        if end > start:
            before = points[start - 1].at if start else None
            after = points[end].at if end < len(points) else None
            _run(points[start:end], before, after, near, not_after, notes)
        start = end + 1


def _run(
    run: Sequence[_Point],
    before: float | None,
    after: float | None,
    near: float | None,
    not_after: float | None,
    notes: list[str],
) -> None:
    day, previous, doubt = 0, run[0].stamp.seconds, len(run)
    counted: list[float] = []
    for index, p in enumerate(run):
        of_day = p.stamp.seconds
        step = of_day - previous
        if step < -DAY_S / 2:
            day += 1
        elif step >= DAY_S - INTERLEAVED_S:
            day -= 1
        elif step < -INTERLEAVED_S and doubt == len(run):
            doubt = index
            notes.append(f"line {p.line} steps back {-step:.0f} s: its day and those after it are uncertain")
        counted.append(day * DAY_S + of_day)
        previous = of_day
    shift, how = 0.0, "days counted from the first"
    if before is not None:
        shift, how = _whole_days(before - counted[0]), "day from a dated line before"
    elif after is not None:
        shift, how = _whole_days(after - counted[-1]), "day from a dated line after"
    elif near is not None:
        shift, how = _whole_days(near - counted[-1]), "day from another file"
    elif not_after is not None:
        shift = math.floor((not_after - max(counted)) / DAY_S) * DAY_S
        how = "day from the time of the file"
    if before is not None and after is not None:
        if _whole_days(after - counted[-1]) == shift:
            doubt = len(run)
        else:
            doubt = 0
            notes.append(
                f"lines {run[0].line} to {run[-1].line}: the dates around them disagree on their day"
            )
    for index, (p, at) in enumerate(zip(run, counted, strict=True)):
        p.at, p.how = at + shift, how
        if index >= doubt:
            p.precision_s += DAY_S


def _whole_days(seconds: float) -> float:
    return round(seconds / DAY_S) * DAY_S


def _zones(points: Sequence[_Point], notes: list[str]) -> bool:
    """Brings stamps with and without a zone on one scale; True if that is UTC.

    The zone of those without is the only one in use that leaves the lines in order; if several do, or none,
    the fewer of the two kinds keep their times give or take any zone.
    """
    zoned = [p for p in points if p.stamp.zone]
    local = [p for p in points if not p.stamp.zone]
    if not zoned or not local:
        return bool(zoned)
    low, high, changes = -float(ZONE_S), float(ZONE_S), 0
    ordered = [p for p in points if not p.subject and p.at is not None and p.precision_s < DAY_S]
    for a, b in pairwise(ordered):
        assert a.at is not None and b.at is not None
        slack = INTERLEAVED_S + max(a.precision_s, b.precision_s)
        if a.stamp.zone and not b.stamp.zone:
            high = min(high, b.at - a.at + slack)
        elif b.stamp.zone and not a.stamp.zone:
            low = max(low, a.at - b.at - slack)
        changes += a.stamp.zone != b.stamp.zone
    fitting = [offset for offset in ZONES_S if low <= offset <= high]
    if len(fitting) == 1 and (fitting[0] == 0 or changes >= MIN_CHANGES):
        for p in local:
            if p.at is not None and p.stamp.style != "slurm":
                p.at -= fitting[0]
        if fitting[0]:
            notes.append(f"times without a zone are {fitting[0] / 3600:+g} h from UTC, by the lines with one")
        return True
    fewer = zoned if len(zoned) < len(local) else local
    for p in fewer:
        p.precision_s += 2 * ZONE_S
        p.how += "; how its zone relates to the file's other times is unknown"
    notes.append(f"{len(zoned)} lines with a zone, {len(local)} without: the zone of the latter is not told")
    return fewer is local


def _scheduler(points: Sequence[_Point]) -> None:
    """A scheduler's time may be of another zone than the ranks': it counts if its neighbours agree."""
    own = [p for p in points if not p.subject and p.at is not None]
    for p in points:
        if p.stamp.style != "slurm" or p.at is None or not own:
            continue
        before = max((q.at for q in own if q.at is not None and q.line < p.line), default=-math.inf)
        after = min((q.at for q in own if q.at is not None and q.line > p.line), default=math.inf)
        ends = min(after, before + QUARTER_S / 2)
        if not before - INTERLEAVED_S <= p.at <= ends + INTERLEAVED_S:
            p.precision_s += 2 * ZONE_S
            p.how = "the scheduler's time, in a zone that may not be this file's"


def _jump(points: Sequence[_Point], notes: list[str]) -> float:
    """The largest step back of the size of a zone change; others are told, but late writers make them."""
    jump_s = 0.0
    seen = [p for p in points if not p.subject and p.at is not None and p.precision_s < DAY_S]
    for a, b in pairwise(seen):
        assert a.at is not None and b.at is not None
        step = a.at - b.at
        if step <= INTERLEAVED_S + b.precision_s:
            continue
        notes.append(f"line {b.line} is {step:.0f} s before line {a.line}")
        off = step % QUARTER_S
        if min(off, QUARTER_S - off) <= INTERLEAVED_S and step > QUARTER_S / 2:
            jump_s = max(jump_s, step)
    return jump_s
