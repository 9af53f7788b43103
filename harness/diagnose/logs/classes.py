"""What a class of lines is: how a scan finds it, how much it weighs, and how its fields are read."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

MAX_MESSAGE_CHARS = 8000

KILLER, LOOP, DATA, CONTEXT = 1, 2, 3, 0
"""The tiers of the second seed: process killers, training loop failures, input and output; 0 is context."""


@dataclass(frozen=True)
class Parsed:
    """Fields of one message. `named`: ranks it names; `what` replaces the class's own where it is finer."""

    what: str | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    named: tuple[int, ...] = ()
    tier: int | None = None


Parser = Callable[[str], Parsed | None]


def plain(message: str) -> Parsed | None:
    """A message without fields."""
    return Parsed()


@dataclass(frozen=True)
class LineClass:
    """One class of lines. `regex` is hyperscan's and may find more than `parse` accepts."""

    what: str
    tier: int
    regex: str
    parse: Parser = plain
    ignore_case: bool = False

    def is_in(self, text: str) -> bool:
        """Whether a part of a line that a scan found is what it found."""
        return _compiled(self.regex, self.ignore_case).search(text) is not None


@lru_cache(maxsize=256)
def _compiled(regex: str, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(regex, re.IGNORECASE if ignore_case else 0)


def ranks_in(text: str) -> tuple[int, ...]:
    """Ranks of a list such as ``0, 1,2`` or ``2-3,5``."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or len(first) > 7 or len(last) > 7:
            continue
        low, high = int(first), int(last or first)
        found.extend(range(low, min(high, low + (1 << 16)) + 1))
    return tuple(found)
