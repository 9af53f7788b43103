"""What a whole file's lines wear that its writer did not write: marks of a quotation, numbers, a web page.

It is the same for all lines of a file, so the head of a file tells it, once.
"""

import codecs
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

FIRST_LINES = 20
"""If most of these wear nothing, no line of the file is looked at again."""

LEAST_NUMBERED, LEAST_WITH_COLON = 4, 20
"""Labels of tasks, behind which a colon stands, rise as well, but not over so many lines without a fall."""

MOST = 0.8
"""This share of the lines wears it; a ticket has a few words of its own around a log."""

_LINE = re.compile(rb"[^\r\n]+")
_NUMBER = r" *(\d{1,7})(?::(?!\d\d(?::\d\d)?(?:[^\d:]|$)) ?|\t| ?\| )"
"""As ``grep -n``, ``cat -n`` and tickets put it; a time of day is none."""

_NUMBERED = re.compile(_NUMBER)
_QUOTED = re.compile(r"(?: ?>)+ ?")
_MAY_WEAR = re.compile(f" *>|{_NUMBER}".encode())

_PAGE = re.compile(rb"<(?:!doctype html|html|body|pre)\b", re.IGNORECASE)
_TERMINAL = re.compile(rb"<pre\b", re.IGNORECASE)
_OURS = re.compile(rb"<title>drill: ")
_TAG = re.compile(
    r"</?(?:!doctype|html|head|meta|link|title|body|pre|code|samp|tt|span|div|p|br|b|i|u|em|strong|font|a"
    r"|table|tbody|tr|td|ol|ul|li)(?:\s[^<>]{0,2000})?/?>",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Dress:
    """`quotes`: how deep a quotation is nested. `numbered`: by line. `page`: the tags of a web page."""

    quotes: int = 0
    numbered: bool = False
    page: bool = False

    def off(self, text: str) -> str:
        """A line without it; a line that does not wear it, as it is. Blanks behind a mark are the line's."""
        if self.page:
            text = _shown(text) if "<" in text or "&" in text else text
        for _ in range(self.quotes):
            mark = text.lstrip(" ")
            if not mark.startswith(">"):
                break
            text = mark[1:].removeprefix(" ")
        if self.numbered and (number := _NUMBERED.match(text)):
            text = text[number.end() :]
        return text


def _shown(text: str) -> str:
    """What a browser shows of a line."""
    # Its table of names is loaded where there is a page.
    import html

    return html.unescape(_TAG.sub("", text))


def is_page(head: bytes) -> bool:
    """Whether first bytes are those of a web page that shows a terminal's text, and not our own report."""
    begin = head.removeprefix(codecs.BOM_UTF8).lstrip()
    return bool(_PAGE.match(begin) and _TERMINAL.search(head) and not _OURS.search(head))


def dress_of(head: bytes) -> Dress | None:
    """What the lines of a file wear, by its first bytes; None for nothing, which most do."""
    if is_page(head):
        return Dress(page=True)
    first = [found[0] for found in islice(_LINE.finditer(head), FIRST_LINES)]
    if sum(_MAY_WEAR.match(line) is not None for line in first) * 2 <= len(first):
        return None
    lines = [line for line in head.decode(errors="replace").splitlines() if line.strip()]
    quotes = _quotes(lines)
    numbered = _are_numbered([Dress(quotes).off(line) for line in lines], labels=not quotes)
    return Dress(quotes, numbered) if quotes or numbered else None


def _quotes(lines: Sequence[str]) -> int:
    """How deep most lines are quoted; Megatron begins some lines of a log with one such mark."""
    deep = [mark[0].count(">") for line in lines if (mark := _QUOTED.match(line))]
    if not deep or len(deep) < MOST * len(lines):
        return 0
    ((usual, _),) = Counter(deep).most_common(1)
    return usual


def _are_numbered(lines: Sequence[str], *, labels: bool) -> bool:
    """Whether most lines have a number, and each a greater one than the line before.

    `labels`: whether they may be srun's labels, of tasks that say one line each, from 0 on.
    """
    found = [number for line in lines if (number := _NUMBERED.match(line))]
    colon = any(":" in number[0] for number in found)
    if len(found) < max(LEAST_WITH_COLON if colon else LEAST_NUMBERED, MOST * len(lines)):
        return False
    rising = all(int(one[1]) < int(next_[1]) for one, next_ in pairwise(found))
    return rising and not (labels and colon and int(found[0][1]) == 0)
