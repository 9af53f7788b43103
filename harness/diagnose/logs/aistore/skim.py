"""Which lines of a stretch have to be looked at: in a busy log hardly any."""

import re
from collections.abc import Iterable, Sequence

NEEDLES = (
    *(b".n:", b'.n"', b".n=", b".n =", b"shared-dm", b"x-get-batch", b"pressure", b"lcache", b"gc:", b"oom"),
    *(b"alert: low", b"===", b" common:", b" common_stats:"),
)
"""One of them is in each line that holds counters, a marker or a pattern."""

_HOUR = re.compile(rb" \d\d:")


def worth_reading(lines: Sequence[bytes]) -> Iterable[int]:
    """Indices, ascending, of the lines to look at.

    All of them where the hour changes, since midnights are counted; else those that hold a needle, and the
    first and the last stamped one, which keep the clock.
    """
    hours = {line[1:5] for line in lines}
    stamped = [hour for hour in hours if _HOUR.fullmatch(hour)]
    if len(stamped) != 1:
        return range(len(lines))
    (hour,) = stamped
    block = b"\n".join(lines)
    found: set[int] = set()
    for needle in NEEDLES:
        if needle in block:
            found.update([index for index, line in enumerate(lines) if needle in line])
    for order in (range(len(lines)), range(len(lines) - 1, -1, -1)):
        edge = next((index for index in order if lines[index][1:5] == hour), None)
        if edge is not None:
            found.add(edge)
    return sorted(found)
