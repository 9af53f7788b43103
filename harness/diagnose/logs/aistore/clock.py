"""The clock of one file: its lines state only the time of day, so the days are counted."""

import calendar
import datetime
import re

from harness.diagnose.logs.aistore.model import YEAR_UNKNOWN

DAY_S = 86400
_JITTER_S = 60.0
"""Lines of several threads stand out of order by less; a larger step back is a midnight."""

_MARKER = re.compile(
    r"(?<!\d)(\d\d?) ([A-Z][a-z]{2}) (\d\d|\d{4}) (\d\d):(\d\d) ([A-Z]{1,5}|[+-]\d\d(?:\d\d)?)(?:$| )",
    re.ASCII,
)
_MARKED = ("===", " common:", " common_stats:")
"""The marker has a line of its own; the name of its source file is left out by newer daemons."""

_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
MAX_DAYS = 90
"""No file is older than this when a marker is written in it: it rotates by size long before."""

_UTC = frozenset(("UTC", "GMT", "Z"))
_HALF_HOUR_S = 1800


class Clock:
    """Counts days along a file. `at` is relative until `base`, the day of the file's beginning, is known.

    Midnight is a step back of the time of day; a hole of more than a day cannot be seen, so the hourly marker
    and explicit dates correct the count from there on.
    """

    def __init__(self) -> None:
        self.day = 0
        self.base: int | None = None
        self.year_known = False
        self.zone: str | None = None
        self.zone_offset_s: float | None = None
        self._named: tuple[int, int] | None = None
        self._prev: float | None = None
        self._older: float | None = None
        self._before_wrap: tuple[int, float] | None = None

    def begins(self, month: int, day: int, second: float, year: int | None = None) -> bool:
        """The file's beginning, from its first line (with the year) or its name; False if no such day."""
        base = _ordinal(YEAR_UNKNOWN if year is None else year, month, day)
        if base is None:
            return False
        self.base, self.year_known, self._named = base, year is not None, (month, day)
        self._prev = second
        return True

    def at(self, second: float) -> float:
        """Seconds since midnight of the day on which the file begins, for a line at `second` of its day."""
        prev = self._prev
        if prev is None:
            self._prev = second
        elif second < prev - _JITTER_S and self._older is not None and second >= self._older - _JITTER_S:
            # The line before alone had jumped ahead: it was garbled, time goes on from the one before it.
            self._prev = second
        elif second < prev - _JITTER_S:
            self._older = None
            self._before_wrap = (self.day, prev)
            self.day += 1
            self._prev = second
        elif self._before_wrap and second >= self._before_wrap[1] - _JITTER_S:
            # One line alone stepped back: it was torn or garbled, no day went by.
            self.day, _ = self._before_wrap
            self._before_wrap, self._prev = None, second
        elif prev < _JITTER_S and second > DAY_S - _JITTER_S:
            return (self.day - 1) * DAY_S + second
        else:
            self._before_wrap = None
            self._older, self._prev = prev, max(prev, second)
        return self.day * DAY_S + second

    def dated(self, year: int, month: int, day: int) -> None:
        """A line states its date: it decides from there on."""
        if (today := _ordinal(year, month, day)) is not None:
            self._today(today)

    def marker(self, text: str, second: float) -> None:
        """Take the date and the zone from a marker line, if `text` is one, at `second` of its day."""
        found = _MARKER.search(text) if any(word in text for word in _MARKED) else None
        if not found:
            return
        g = found.groups()
        month = _MONTHS.get(g[1], 0)
        year = int(g[2]) + (2000 if len(g[2]) == 2 else 0)
        date = _ordinal(year, month, int(g[0]))
        hour, minute = int(g[3]), int(g[4])
        if date is None or hour > 23 or minute > 59:
            return
        # The stamp of the same line may be in another zone than the marker.
        apart = (second - hour * 3600 - minute * 60) / _HALF_HOUR_S
        apart_s = (round(apart) * _HALF_HOUR_S + DAY_S // 2) % DAY_S - DAY_S // 2
        self.zone = g[5]
        offset = _offset_s(g[5])
        self.zone_offset_s = None if offset is None else float(offset + apart_s)
        moment = date * DAY_S + hour * 3600 + minute * 60 + apart_s
        self._today(moment // DAY_S)

    def absolute(self, relative: float) -> float:
        """Unix seconds of a relative time; the day is 1 January 1970 if nothing says which."""
        return (self.base or 0) * DAY_S + relative - (self.zone_offset_s or 0.0)

    def _today(self, today: int) -> None:
        if self.base is not None and not self.year_known and self._named:
            year = datetime.date.fromordinal(today + _EPOCH).year
            for guess in (year, year - 1):
                base = _ordinal(guess, *self._named)
                if base is not None and today - MAX_DAYS <= base <= today:
                    self.base, self.year_known = base, True
                    break
        if self.base is None or not self.year_known or today < self.base:
            self.base, self.year_known = today - self.day, True
        else:
            self.day = today - self.base
            self._before_wrap = None


_EPOCH = datetime.date(1970, 1, 1).toordinal()


def _ordinal(year: int, month: int, day: int) -> int | None:
    """Days since 1970, None for a day that does not exist."""
    try:
        return datetime.date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None


def _offset_s(zone: str) -> int | None:
    if zone in _UTC:
        return 0
    if zone[0] not in "+-":
        return None
    seconds = int(zone[1:3]) * 3600 + int(zone[3:5] or 0) * 60
    return -seconds if zone[0] == "-" else seconds
