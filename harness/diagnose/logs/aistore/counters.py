"""Stats lines: ``{err.get.n:12,get.n:88123,...}``, proper JSON, or ``err.get.n=12`` anywhere in a line."""

import re

from harness.diagnose.logs.aistore.model import TRACKED

_PAIR = re.compile(
    r"(?<![\w.])("
    + "|".join(re.escape(name) for name in TRACKED)
    + r')"?\s{0,3}[:=]\s{0,3}"?(\d{1,18})(?!\d)'
)
MAX_STATS_CHARS = 32 << 10
"""Stats lines with many disks are long; counters stand in front of the disks."""


def read_counters(text: str, before: tuple[int, ...]) -> tuple[int, ...] | None:
    """The tracked counters of a line in the order of TRACKED, None if it has none of them.

    The daemon leaves out counters that are zero, so what a whole ``{...}`` lacks is zero; what a cut or a
    loose line lacks is as it was `before`.
    """
    pairs = {found[1]: int(found[2]) for found in _PAIR.finditer(text, 0, MAX_STATS_CHARS)}
    if not pairs:
        return None
    body = text.rstrip()
    if body.endswith("}") and "{" in body and "..." not in body[-8:]:
        return tuple(pairs.get(name, 0) for name in TRACKED)
    return tuple(pairs.get(name, old) for name, old in zip(TRACKED, before, strict=True))


def stepped_back(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Whether served requests are fewer than before: the daemon began anew.

    Error counters alone can be reset by hand while the daemon runs.
    """
    return any(
        new < old for name, old, new in zip(TRACKED, before, now, strict=True) if not name.startswith("err.")
    )
