"""Lines of a log that may hold a record, found at the speed of `bytes.find`, and what stands before it."""

import calendar
import datetime
import math
import re
from collections.abc import Iterable, Iterator

NEEDLES = (
    *(b"loss: ", b"the checkpoint", b"iteration ", b"ranks (ms)", b"/Rnk: ", b"Ranks with "),
    *(b"world size", b"world_size ", b"step=", b"time (ms) |"),
)
"""One of them is in each line that a parser wants; a line without any is never looked at."""

MAX_LINE_CHARS = 64 << 10

_COLOUR = re.compile(r"\x1b?\[\d{1,3}(?:;\d{1,3})*m")
_LOST_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3})*m")
"""With the escape lost, as terminals and web pages leave it."""

_GLOBAL = re.compile(r"\[rank(\d{1,7})\]:|^\[\d+,(\d{1,7})\]<std(?:out|err)>")
_LOCAL = re.compile(r"\[[a-zA-Z_]+?(\d{1,5})\]:|^\s*(\d{1,7}): ")
_LABEL = re.compile(r"^\s*(?:\[\w+\]:|\[\d+,\d+\]<std(?:out|err)>:?|\d{1,7}:(?=\s))[ ]?")
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T_](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_HEAD_CHARS = 300


class Line:
    """One line: `text` without colours, `number` from 1; `whole` is False if the file ends inside it."""

    __slots__ = ("number", "text", "whole")

    def __init__(self, number: int, text: str, *, whole: bool = True) -> None:
        self.number = number
        self.text = text
        self.whole = whole

    @property
    def rank(self) -> int | None:
        """The global rank, as ``[rank3]:`` or mpirun's tag states it."""
        found = _GLOBAL.search(self.text, 0, _HEAD_CHARS)
        return int(found[1] or found[2]) if found else None

    @property
    def local_rank(self) -> int | None:
        """What torchrun's ``[default3]:`` or srun's label says.

        It is the global rank only on one node, or (srun) with one task a rank.
        """
        found = _LOCAL.search(self.text, 0, _HEAD_CHARS)
        return int(found[1] or found[2]) if found and self.rank is None else None

    def without_label(self) -> str:
        """The text behind the launcher's labels, for lines that continue another."""
        text, before = self.text, ""
        while text != before and not text.startswith("  "):
            before, text = text, _LABEL.sub("", text, count=1)
        return text


class Candidates:
    """Runs over a log and yields the lines that hold a needle, and each next line while `follow` is set."""

    def __init__(self, blocks: Iterable[tuple[int, bytes]]) -> None:
        self._blocks = blocks
        self.follow = False

    def __iter__(self) -> Iterator[Line]:
        for number, block in self._blocks:
            position, starts = 0, iter(_starts(block))
            while position < len(block):
                if not self.follow:
                    start = next((s for s in starts if s >= position), None)
                    if start is None:
                        break
                    number += block.count(b"\n", position, start)
                    position = start
                end = block.find(b"\n", position)
                raw = block[position : end if end >= 0 else len(block)]
                position += len(raw) + 1
                yield from _lines(number, raw, whole=end >= 0)
                number += 1


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


def _starts(block: bytes) -> list[int]:
    """Where lines begin that hold a needle, ascending."""
    found: set[int] = set()
    for needle in NEEDLES:
        at = block.find(needle)
        while at >= 0:
            found.add(block.rfind(b"\n", 0, at) + 1)
            end = block.find(b"\n", at)
            if end < 0:
                break
            at = block.find(needle, end + 1)
    return sorted(found)


def _lines(number: int, raw: bytes, *, whole: bool) -> Iterator[Line]:
    """A progress bar puts many lines into one, with carriage returns between."""
    parts = raw.rstrip(b"\r").split(b"\r")
    for part in parts:
        text = part[:MAX_LINE_CHARS].decode(errors="surrogateescape")
        if "[" in text:
            text = (_COLOUR if "\x1b" in text else _LOST_COLOUR).sub("", text)
        yield Line(number, text, whole=whole or part is not parts[-1])
