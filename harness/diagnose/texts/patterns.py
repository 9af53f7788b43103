"""Patterns that lines are looked for by, and the database that hyperscan makes of them."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import hyperscan

from harness.diagnose.texts.compiled import kept

HEAD = "HEAD"
HEAD_LINES = 80
"""The first lines of a file have this tag: who speaks in it, and how it begins."""

TAIL = "TAIL"
TAIL_LINES = 8
"""The last lines of a file have this tag; fewer if they are very long."""

SAMPLE = "SAMPLE"
SAMPLE_LINES = 2
"""The first lines of each block have this tag: a part of a file that nobody complains in."""

BIT_OF = {HEAD: 1, TAIL: 2, SAMPLE: 4}
"""Of tags that come from where a line stands; the bits behind them are those of patterns."""

_FIRST_BIT = 3
_FLAGS = hyperscan.HS_FLAG_MULTILINE


@dataclass(frozen=True)
class Pattern:
    """A regular expression that gives a line its tag; several may give the same.

    Matched against bytes as they stand in the file, colours included. Hyperscan's dialect: no groups to look
    around or back; ``^`` and ``$`` are the line's. ``[^x]`` and ``\\s`` match line ends too, so bound them:
    the line in which a match ends gets the tag. A pattern ends with what must stand there, not with a repeat:
    each of its ends is a match.
    """

    tag: str
    regex: str
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if self.regex.endswith(("*", "+", "?", ",}")) and self.regex[-2:-1] != "\\":
            raise ValueError(f"pattern {self.regex!r} ends with a repeat: each of its ends would be a match")


ID_BITS = 12
ID_MASK = (1 << ID_BITS) - 1


class Database:
    """Patterns, compiled when they are first needed, and a name for each set of bits.

    Hits are ints: where a match ends, then its bit.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = patterns
        self._tags = tuple(dict.fromkeys(pattern.tag for pattern in patterns))
        self._known: dict[int, frozenset[str]] = {}
        self._compiled: hyperscan.Database | None = None
        self._compiling: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to compile, while this thread does something else."""
        if self._compiled is None and self._compiling is None:
            self._compiling = threading.Thread(target=self._compile_quietly)
            self._compiling.start()

    def ready(self) -> hyperscan.Database:
        """The compiled patterns; no thread is left, so that a process may be forked.

        Raises: hyperscan.error, for a pattern that is none.
        """
        if self._compiling is not None:
            self._compiling.join()
            self._compiling = None
        return self._compiled or self._compile()

    def _compile_quietly(self) -> None:
        # A pattern that is none is tried again, and complained of, where it is needed.
        with suppress(hyperscan.error):
            self._compile()

    def _compile(self) -> hyperscan.Database:
        self._compiled = database = kept(self._patterns, self._compiled_now)
        return database

    def _compiled_now(self) -> hyperscan.Database:
        caseless = hyperscan.HS_FLAG_CASELESS
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(
            expressions=[pattern.regex.encode() for pattern in self._patterns],
            ids=[self._tags.index(pattern.tag) + _FIRST_BIT for pattern in self._patterns],
            elements=len(self._patterns),
            flags=[_FLAGS | (caseless if pattern.ignore_case else 0) for pattern in self._patterns],
        )
        return database

    def scan(self, data: memoryview) -> list[int]:
        """Where patterns match, in order."""
        hits = list[int]()
        if self._patterns and len(data):

            def matched(tag: int, begin: int, end: int, flags: int, context: object) -> None:
                hits.append(end << ID_BITS | tag)

            # Its stubs know of no views; it takes any buffer.
            self.ready().scan(cast(bytes, data), match_event_handler=matched)
            hits.sort()
        return hits

    def tags(self, mask: int) -> frozenset[str]:
        """The names of some bits."""
        known = self._known.get(mask)
        if known is None:
            names = (*BIT_OF, *self._tags)
            known = frozenset(name for bit, name in enumerate(names) if mask >> bit & 1)
            self._known[mask] = known
        return known


@lru_cache(maxsize=16)
def database_of(patterns: tuple[Pattern, ...]) -> Database:
    """One in a process; a forked child has it too."""
    return Database(patterns)
