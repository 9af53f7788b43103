"""The date that stands in a line of a log."""

import calendar
import datetime
import math
import re

_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T_](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)


def unix_time(text: str, before: int) -> float:
    """The date that stands in a line before its message, as unix seconds, NaN if none does.

    A date with a zone wins, else the last one, which the program itself wrote. UTC where no zone is given.
    """
    best: re.Match[str] | None = None
    for found in _DATE.finditer(text, 0, before):
        if best is None or found[8] or not best[8]:
            best = found
    if best is None:
        return math.nan
    year, month, day, hour, minute, second = (int(best[i]) for i in range(1, 7))
    try:
        whole = calendar.timegm(
            datetime.datetime(year, month, day, hour, minute, min(second, 59)).timetuple()
        )
    except ValueError:
        return math.nan
    return whole + (second == 60) + float(f"0.{best[7] or 0}") - _offset_s(best[8])


def _offset_s(zone: str | None) -> int:
    if not zone or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds
