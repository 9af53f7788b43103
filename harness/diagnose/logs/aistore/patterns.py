"""Lines of daemons that mean something, by words that must follow each other; no regex runs on them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """One kind of line. `words`: alternatives, each a row of words in order; `stage` in the chain, 0 if none.

    Stages: 1 pressure, 2 streams between targets break, 3 a batch misses objects, 4 its job is aborted.
    """

    name: str
    meaning: str
    words: tuple[tuple[str, ...], ...]
    stage: int


PATTERNS = (
    Pattern(
        "batch_lost",
        "a batch GET lost objects that stream between targets",
        (("x-get-batch", "out-of-bounds index"),),
        3,
    ),
    Pattern(
        "stream_broken",
        "a stream between targets (data mover) broke",
        (("shared-dm", "terminated", "broken pipe"),),
        2,
    ),
    Pattern(
        "recv_dropped",
        "objects were dropped since their batch job was already aborted",
        (("shared-dm", "xid", "not found, dropping recv"), ("shared-dm", "is closed, dropping recv")),
        4,
    ),
    Pattern("batch_aborted", "a batch job was aborted", (("x-get-batch", "abort"),), 4),
    Pattern(
        "pressure",
        "the daemon is under critical pressure (disk, memory or CPU)",
        (("resource pressure", "load=critical"), ("resource pressure", "loadcritical")),
        1,
    ),
    Pattern(
        "disk_critical",
        "disks are at the critical level, housekeeping is skipped",
        (("lcache", "hk", "dsk=critical"), ("lcache", "hk", "dskcritical")),
        1,
    ),
    Pattern(
        "memory",
        "memory is short (forced garbage collection)",
        (("gc:", "free mem"), ("oom:",), ("alert: oom",), ("alert: low memory",)),
        1,
    ),
)
PATTERN = {pattern.name: pattern for pattern in PATTERNS}

STRONG = frozenset(("batch_lost", "stream_broken"))
"""Failures of the targets themselves; the rest is pressure, or consequences that a client can cause too."""


def find_pattern(text: str) -> str | None:
    """The first pattern whose words stand in `text`."""
    for pattern in PATTERNS:
        if any(_in_order(text, words) for words in pattern.words):
            return pattern.name
    return None


def _in_order(text: str, words: tuple[str, ...]) -> bool:
    at = 0
    for word in words:
        found = text.find(word, at)
        # "room:" is not "oom:", "lgc:" is not "gc:".
        while found > 0 and word[0].isalpha() and text[found - 1].isalnum():
            found = text.find(word, found + 1)
        if found < 0:
            return False
        at = found + len(word)
    return True
