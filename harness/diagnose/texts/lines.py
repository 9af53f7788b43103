"""One line of a log, and what its launcher's labels say."""

import re

MAX_LINE_CHARS = 64 << 10

NO_TAGS: frozenset[str] = frozenset()

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|\[\d{1,3}(?:;\d{1,3}){0,8}m)"
)
_LOST_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,8}m")
"""With the escape lost, as terminals and web pages leave it."""

_GLOBAL = re.compile(r"\[rank(\d{1,7})\]:|^\[\d+,(\d{1,7})\]<std(?:out|err)>")
_LOCAL = re.compile(r"\[[a-zA-Z_]+?(\d{1,5})\]:|^\s*(\d{1,7}): ")
_LABEL = re.compile(r"^\s*(?:\[\w+\]:|\[\d+,\d+\]<std(?:out|err)>:?|\d{1,7}:(?=\s))[ ]?")
_HEAD_CHARS = 300


class Line:
    """One line: `text` without colours, `number` from 1, `tags` of the patterns that its bytes matched.

    `whole` is False if the file ends inside it, or if `text` is only its beginning. Bytes that are no UTF-8
    stand in `text` as surrogates (``surrogateescape``).
    """

    __slots__ = ("number", "tags", "text", "whole")

    def __init__(self, number: int, text: str, tags: frozenset[str] = NO_TAGS, *, whole: bool = True) -> None:
        self.number = number
        self.text = text
        self.tags = tags
        self.whole = whole

    def __repr__(self) -> str:
        return f"Line({self.number}, {self.text!r}, {set(self.tags)}, whole={self.whole})"

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


def line_of(number: int, raw: bytes | bytearray, tags: frozenset[str], *, whole: bool) -> Line:
    """A line from its bytes: cut off if it is long, without colours and other escape sequences."""
    if len(raw) > MAX_LINE_CHARS and raw[:1] == b"\0":
        raw = raw.lstrip(b"\0")
    if len(raw) > MAX_LINE_CHARS:
        raw, whole = raw[:MAX_LINE_CHARS], False
    text = raw.decode(errors="surrogateescape")
    if "[" in text or "\x1b" in text:
        if "\x1b" in text:
            text = _ESCAPE.sub("", text)
        text = _LOST_COLOUR.sub("", text)
    return Line(number, text, tags, whole=whole)
