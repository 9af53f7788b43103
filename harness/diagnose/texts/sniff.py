"""What a file is by its first bytes."""

import codecs
import json
import re
from itertools import islice

from harness.diagnose.texts.dress import is_page

HEAD_BYTES = 64 << 10

SPANS = "spans"
TEXT = "text"
ELSE = "else"
"""Evidence that others read, or none at all: dumps, our own records, documents, markup."""

BINARY = "binary"
EMPTY = "empty"

_LINE = re.compile(rb"[^\r\n]+")
_MARKUP = re.compile(rb"<(?:!doctype|html|svg|\?xml)", re.IGNORECASE)
_COUNTERS = re.compile(
    rb"^=+NVSMI LOG=+|^(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_\w+|^# Port (?:extended )?counters: Lid \d"
    rb"|^(?:/sys/class/)?infiniband/[^/]+/ports/\d+/|^link [\w.-]+/\d+ rx_"
)
"""Counters of cards and ports: they have a room of their own."""

_OURS = frozenset(("t", "step", "rank"))
_SPAN_KEY = "log_type_name"
_SPOKEN = ("log", "message", "msg", "MESSAGE", "textPayload")
"""Under one of these, container runtimes, journald and log exports keep the line that a program wrote."""

_LOGGED = (("event", "level"), ("event", "log_level"), ("text", "record"))
"""structlog's and loguru's: words that others use as well, so that both must be there."""

_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b\0")) + b"\x7f"
_ZEROS = b"\0" * 64
_HOLE = re.compile(rb"\0{64,}")
_MIN_BYTES = 4 << 10
"""A shorter file may hold any bytes: it costs nothing to read."""


def sniff(head: bytes) -> str:
    """Of some first bytes: SPANS for torchtitan's JSON lines, TEXT for any log, ELSE, BINARY or EMPTY.

    Zeros before the text are a hole that a truncated log was left with, and say nothing; nor do those inside
    of a text, where a node went down or a disk was full.
    """
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        head = head.decode("utf-16", errors="replace").encode()
    elif head.startswith(_PICKLES):
        return ELSE
    else:
        if not head:
            return EMPTY
        head = _around_holes(head.lstrip(b"\0"))
        controls = len(head) - len(head.translate(None, _CONTROLS)) if len(head) > _MIN_BYTES else 0
        if not head or head.count(0) * 10 > len(head) or controls * 100 > len(head) * 8:
            return BINARY
    lines = (found[0].strip() for found in _LINE.finditer(head.removeprefix(codecs.BOM_UTF8)))
    first = list(islice(filter(None, lines), 20))
    if not first:
        return EMPTY
    if is_page(head):
        return TEXT
    if _MARKUP.match(first[0]) or any(_COUNTERS.search(line) for line in first):
        return ELSE
    objects = [line for line in first if line.startswith(b"{")]
    if len(objects) * 2 <= len(first):
        return ELSE if first[0] == b"{" else TEXT
    return _of_objects(objects)


def _of_objects(objects: list[bytes]) -> str:
    spoken = False
    for line in objects:
        value = _object(line)
        keys = (
            value.keys() if value is not None else {_SPAN_KEY} if b'"log_type_name"' in line else set[str]()
        )
        if keys >= _OURS:
            return ELSE
        if _SPAN_KEY in keys:
            return SPANS
        spoken |= value is not None and _speaks(value)
    return TEXT if spoken else ELSE


def _speaks(value: dict[str, object]) -> bool:
    said = any(isinstance(value.get(key), str) for key in _SPOKEN)
    return said or any(isinstance(value.get(key), str) and beside in value for key, beside in _LOGGED)


def _around_holes(head: bytes) -> bytes:
    """What stands around long runs of zeros, if it is nothing but lines of text; else all as it is."""
    if _ZEROS not in head:
        return head
    text = _HOLE.sub(b"\n", head)
    controls = len(text) - len(text.translate(None, _CONTROLS + b"\0"))
    return text if controls * 100 <= len(text) and b"\n" in head else head


def _object(line: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
