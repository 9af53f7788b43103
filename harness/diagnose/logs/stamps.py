"""Times in log lines: every style that training logs mix, and which of several is the line's own."""

import math
import re
from calendar import timegm
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

DAY_S = 86400
MAX_CHARS = 4096
"""Of a longer line only so much is searched: a line's own time stands in front."""

YEARLESS = 1972
"""The year in which `seconds` of a stamp without a year are counted; a leap year, so 29 February reads."""

FLOAT_S = 1e-6
"""Unix seconds as a float hold no more than this."""

_MON = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MONTHS = {name: number for number, name in enumerate(_MON.split("|"), 1)}

_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?![\d:<])")
_YEAR_BEFORE = re.compile(r"/\d{4}:$")

# What may stand right before the time of day; read in a window of 24 characters, so it cannot run away.
_DATE = re.compile(
    r"(?<!\d)(?P<y>\d{4})(?P<sep>[-/])(?P<mo>\d\d)(?P=sep)(?P<d>\d\d)(?P<join>[T _])$"
    r"|(?<![A-Za-z0-9])[IWEFDC](?P<gy>\d{4})?(?P<gmo>\d\d)(?P<gd>\d\d) $"
    rf"|(?<![A-Za-z])(?P<smo>{_MON}) (?P<sd>[ 0-3]?\d) $"
    rf"|(?<!\d)(?P<rd>\d{{1,2}})[ /-](?P<rmo>{_MON})[ /-](?P<ry>\d{{4}}|\d\d)[ :]$"
    r"|(?<!\d)(?P<umo>\d\d)/(?P<ud>\d\d)/(?P<uy>\d{4}),? $"
    r"|(?<![^\s\]:|])(?P<ais>[IWE]) $"
)
_WEEKDAY = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +$")
_YEAR_AFTER = re.compile(r" (?:([A-Z]{3,5}) )?(\d{4})(?!\d)")
_ZONE = re.compile(
    r"Z(?![A-Za-z0-9])| ?(?:UTC|GMT)(?![A-Za-z0-9])"
    r"| ?([+-])(\d\d):?([0-5]\d)(?![\d:])|([+-])(\d\d)(?![\d:])"
)
_KERNEL = re.compile(r"\[ {0,8}(\d{1,9})\.(\d{3,9})\]")
_EPOCH = re.compile(
    r"(?<![A-Za-z0-9_])(?:ts|time|timestamp|@timestamp|created|epoch|time_ms|time_us|time_ns|unix_time)[\"']?"
    r" {0,2}[:=] {0,2}[\"']?(\d{10,19})(?:\.(\d{1,9}))?(?![\d.])"
)

_EPOCH_WORDS = ("ts", "time", "created", "epoch")
"""One of them is in each key that `_EPOCH` knows."""

_KEYED = re.compile(
    r"[\"'](?:ts|time|@?timestamp|asctime|datetime|date|receiveTimestamp|receive_time)[\"'] ?: ?[\"']?$"
    r"|(?<![A-Za-z0-9_])(?:ts|time|timestamp)=[\"']?$"
)
"""A key of a structured line: its value is the line's own time, wherever it stands."""

_SUBJECT = re.compile(
    r"(?:\b(?i:at|since|until|from|on|before|after|by|till|to|of|deadline|expires?|ends?|started?|last)|"
    r"\b(?:start|end|failure)?_?time) {0,12}[:=]? ?$"
)
"""Words that make a time what the message speaks of."""

_SPAN = re.compile(
    r"(?i:elapsed|eta|took|remaining|left|uptime|time ?out|limit|walltime|duration|runtime|for|after|in"
    r"|within)(?: time)? ?[:=(]? ?$"
)
"""Words that make HH:MM:SS a duration."""

_CANCELLED = re.compile(r"CANCELLED AT (?=\d{4}-\d\d-\d\d)")
_BRACKETS = re.compile(r"\[[^\[\]]{0,80}\]|\([^()]{0,80}\)")
_TAG = re.compile(
    r"debug|info|warn|warning|error|critical|fatal|trace|notice|nemo|[iwefdcp]|kernel|systemd|python|stdout"
    r"|stderr|srun|slurmstepd",
    re.IGNORECASE,
)
_MAX_TOKENS = 5
_MAX_STAMPS = 12
"""A line with more is a table or an attack; the first ones serve as well."""


class Stamp(NamedTuple):
    """One time as it was printed.

    `seconds`: unix seconds where `dated` (in `YEARLESS` where not `has_year`; as if in UTC where not `zone`),
    else seconds of the day; of style kernel, seconds since boot. Where `zone`, the offset is already taken
    off. `precision_s` is the last digit printed: the moment lies in [seconds, seconds + precision_s).
    `style`: iso, torchrun (``2026-08-08_03:12:44``), slurm, glog, syslog, ctime, nginx, us, rfc, ais, time,
    kernel, epoch.
    """

    seconds: float
    dated: bool
    has_year: bool
    zone: bool
    precision_s: float
    style: str


class FoundStamp(NamedTuple):
    """A stamp and where it stands, ``text[start:end]``; `leads` if it is of the line, not its subject."""

    stamp: Stamp
    start: int
    end: int
    leads: bool


def read_stamp(text: str, before: int | None = None) -> Stamp | None:
    """When a line was written; None if it does not say.

    `before`: the offset at which the message begins, where it is known: only what starts before it counts.
    Of several, the last with a zone, else the last of those that lead, which the program itself wrote. A time
    in the message counts if there is no other. Where a receiver's zoned time stands for the program's own,
    the lag between the two (modulo quarter hours: zones) is part of the precision.
    """
    found = read_stamps(text, before)
    leading = [f.stamp for f in found if f.leads]
    if not leading:
        return found[0].stamp if found else None
    # Seconds since boot place nothing on a calendar: they speak only where no other stamp does.
    leading = [s for s in leading if s.style != "kernel"] or leading
    own = leading[-1]
    zoned = [s for s in leading if s.zone]
    if not zoned or own.zone:
        return own
    chosen = zoned[-1]
    if own.style == "kernel":
        return chosen
    lag = (chosen.seconds - own.seconds) % 900
    return chosen._replace(precision_s=max(chosen.precision_s, own.precision_s, min(lag, 900 - lag)))


def read_stamps(text: str, before: int | None = None) -> tuple[FoundStamp, ...]:
    """All times in a line, in order of position; with `before`, those that start before it.

    Times of day and seconds since boot count only in front: further on they are durations and values.
    """
    text = text[:MAX_CHARS]
    spots = sorted(_spots(text), key=lambda spot: spot[1])[:_MAX_STAMPS]
    found: list[FoundStamp] = []
    last_end = 0
    last_style = ""
    led = set[str]()
    for stamp, start, end in spots:
        if start < last_end or (before is not None and start >= before):
            continue
        # A second record of one logger is another line that a race put behind the first.
        logger = stamp.style in ("glog", "epoch") and stamp.style not in led
        leads = logger or _leads(text, stamp, start, last_end, last_style, before is not None)
        if not leads and stamp.style in ("time", "kernel", "ais"):
            continue
        found.append(FoundStamp(stamp, start, end, leads))
        if leads:
            last_end, last_style = end, stamp.style
            led.add(stamp.style)
    return tuple(found)


def slurm_time(text: str) -> Stamp | None:
    """The time that ``CANCELLED AT`` names: in the scheduler's local time, without a zone."""
    said = _CANCELLED.search(text[:MAX_CHARS])
    if said is None:
        return None
    found = next((s for s in _spots(text[said.end() : said.end() + 40]) if s[1] == 0), None)
    return found[0]._replace(style="slurm") if found else None


def _spots(text: str) -> Iterator[tuple[Stamp, int, int]]:
    for found in islice(_times(text), _MAX_STAMPS):
        spot = _clock_time(text, found)
        if spot is not None:
            yield spot
    if "[" in text:
        for found in islice(_KERNEL.finditer(text), _MAX_STAMPS):
            at = float(f"{found[1]}.{found[2]}")
            yield Stamp(at, False, False, False, _digits(found[2]), "kernel"), found.start(), found.end()
    if not any(word in text for word in _EPOCH_WORDS):
        return
    for found in islice(_EPOCH.finditer(text), _MAX_STAMPS):
        power = (len(found[1]) - 10) // 3 * 3
        if len(found[1]) - 10 == power and not (power and found[2]):
            seconds = float(f"{found[1]}.{found[2] or 0}") / 10**power
            precision = max(10.0**-power, FLOAT_S) if power else _digits(found[2])
            yield Stamp(seconds, True, True, True, precision, "epoch"), found.start(), found.end()


def _times(text: str) -> Iterator[re.Match[str]]:
    """Times of day that are not the rest of a longer number."""
    for found in _TIME.finditer(text):
        at = found.start()
        before = text[at - 1] if at else ""
        if not (before.isdecimal() or before in (":", ".")) or _YEAR_BEFORE.search(text[max(at - 6, 0) : at]):
            yield found


@lru_cache(maxsize=4096)
def _day_before(text: str) -> re.Match[str] | None:
    """The date at the end of what stands before a time: in a log mostly the same."""
    return _DATE.search(text)


@lru_cache(maxsize=4096)
def _midnight(year: int, month: int, dom: int) -> int | None:
    """Unix seconds at which a day begins in UTC, None if there is no such day."""
    try:
        date(year, month, dom)
    except ValueError:
        return None
    return timegm((year, month, dom, 0, 0, 0))


def _clock_time(text: str, found: re.Match[str]) -> tuple[Stamp, int, int] | None:
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    of_day = hour * 3600 + minute * 60 + second + (float(f"0.{found[4]}") if found[4] else 0.0)
    precision = _digits(found[4]) if found[3] else 60.0
    floor = max(0, found.start() - 24)
    day = _day_before(text[floor : found.start()])
    if day is None or day["ais"]:
        whole = found[3] and (
            day is not None or found.start() == 0 or text[found.start() - 1] in " \t\r[(|\"'=:"
        )
        if not whole:
            return None
        start = found.start() if day is None else floor + day.start()
        style = "time" if day is None else "ais"
        return Stamp(of_day, False, False, False, precision, style), start, found.end()
    if not found[3] and not day["ry"]:
        return None
    return _on_a_day(text, found, day, floor + day.start(), of_day, precision)


def _on_a_day(
    text: str, found: re.Match[str], day: re.Match[str], start: int, of_day: float, precision: float
) -> tuple[Stamp, int, int] | None:
    end = found.end()
    year: int | None = None
    if day["y"]:
        year, month, dom = int(day["y"]), int(day["mo"]), int(day["d"])
        style = {"_": "torchrun"}.get(day["join"], "nginx" if day["sep"] == "/" else "iso")
        if day["join"] == "T" and text[:start].endswith("CANCELLED AT "):
            style = "slurm"
    elif day["gmo"]:
        year, month, dom, style = int(day["gy"] or 0) or None, int(day["gmo"]), int(day["gd"]), "glog"
    elif day["smo"]:
        month, dom, style = _MONTHS[day["smo"]], int(day["sd"]), "syslog"
        after = _YEAR_AFTER.match(text, end)
        weekday = _WEEKDAY.search(text[max(0, start - 6) : start])
        if weekday:
            start -= len(weekday[0])
            style = "ctime"
        if after and weekday:
            year = int(after[2])
            end = after.end()
            if after[1] in ("UTC", "GMT"):
                return _stamp((year, month, dom), of_day, precision, style, 0, start, end)
    elif day["rmo"]:
        year, month, dom, style = int(day["ry"]), _MONTHS[day["rmo"]], int(day["rd"]), "rfc"
        year += 2000 if year < 100 else 0
    else:
        year, month, dom, style = int(day["uy"]), int(day["umo"]), int(day["ud"]), "us"
    zone = _ZONE.match(text, end) if style in ("iso", "slurm", "nginx", "rfc") else None
    offset = None
    if zone is not None:
        sign, hours, minutes = zone[1] or zone[4], int(zone[2] or zone[5] or 0), int(zone[3] or 0)
        if hours <= 14:
            offset = (-1 if sign == "-" else 1) * (hours * 3600 + minutes * 60)
            end = zone.end()
    return _stamp((year, month, dom), of_day, precision, style, offset, start, end)


def _stamp(
    day: tuple[int | None, int, int],
    of_day: float,
    precision: float,
    style: str,
    offset: int | None,
    start: int,
    end: int,
) -> tuple[Stamp, int, int] | None:
    year, month, dom = day
    midnight = _midnight(year or YEARLESS, month, dom)
    if midnight is None:
        return None
    at = midnight + of_day - (offset or 0)
    return Stamp(at, True, year is not None, offset is not None, precision, style), start, end


def _leads(text: str, stamp: Stamp, start: int, last_end: int, last_style: str, told: bool) -> bool:
    """Whether a time is the line's: a key says so, or nothing but tags stand before it."""
    gap = text[max(last_end, start - 200) : start]
    # A progress bar that redraws itself ends at a carriage return: the line begins anew behind it.
    gap = gap[gap.rfind("\r") + 1 :]
    by_words = _leads_by_words(gap, stamp.style == "time")
    if by_words is not None:
        return by_words
    if told:
        return True
    tokens = _BRACKETS.sub(" ", gap).replace("[", " ").replace("(", " ").split()
    if start - last_end > 200 or len(tokens) > _MAX_TOKENS:
        return False
    # syslog puts the host's bare name behind its time.
    spare = 1 if last_style == "syslog" else 0
    plain = sum(not _is_tag(token, first=last_end == 0) for token in tokens)
    return plain <= spare


@lru_cache(maxsize=4096)
def _leads_by_words(gap: str, of_day: bool) -> bool | None:
    """What the words before a time make of it, None if nothing."""
    if _KEYED.search(gap):
        return True
    return False if _SUBJECT.search(gap) or (of_day and _SPAN.search(gap)) else None


def _is_tag(token: str, first: bool) -> bool:
    """Whether a word is of what collectors put in front: levels, hosts, numbers, names with a colon."""
    bare = token.strip(":|-<>=*\"'{},]")
    if not bare or _TAG.fullmatch(bare):
        return True
    return (first and token.endswith(":")) or any(c.isdigit() or c in "./:" for c in bare)


def _digits(fraction: str | None) -> float:
    return max(math.pow(10.0, -len(fraction)), FLOAT_S) if fraction else 1.0
