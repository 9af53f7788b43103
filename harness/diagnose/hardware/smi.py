"""`nvidia-smi -q`, as text and as XML, of any driver."""

import re
import time
from collections.abc import Iterator
from xml.parsers import expat

from harness.diagnose.hardware.fields import Told
from harness.diagnose.hardware.reading import Card, CardReading
from harness.diagnose.logs.census import short_bus

MAX_DEPTH = 16
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_FIELD = re.compile(r"^(?P<indent> *)(?P<key>\S[^:]*?) *(?:: (?P<value>.*))?$")
_GPU = re.compile(r"^GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)$")
_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d"
_LOST = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu) ?"
    rf"(?:(?:\d{{1,3}}: ?)?(?P<bus>{_BUS}))?:? ?(?P<why>.*)"
)
_TIMES = ("%a %b %d %H:%M:%S %Y",)


class NotReadable(Exception):
    """A file of a known kind that cannot be read; the message says why, in one line."""


def is_smi_text(head: str) -> bool:
    """Whether a text begins as ``nvidia-smi -q`` does."""
    return "NVSMI LOG" in head[:400] or _LOST.search(head[:400]) is not None


def is_smi_xml(head: str) -> bool:
    """Whether a text begins as ``nvidia-smi -q -x`` does."""
    return "<nvidia_smi_log" in head[:2000]


def read_smi_text(text: str, name: str) -> list[CardReading]:
    """Every card of a report.

    Raises:
        NotReadable: there is no card in it.
    """
    cards: list[_Card] = []
    at: float | None = None
    stack: list[tuple[int, str]] = []
    lost: list[CardReading] = []
    for number, line in enumerate(text.splitlines(), 1):
        if gone := _LOST.search(line):
            bus = short_bus(gone["bus"]) if gone["bus"] else None
            said = gone["why"].strip() or line.strip()
            lost.append(CardReading(Card(bus=bus), name, line=number, lost=said))
            continue
        if header := _GPU.match(line.strip()):
            cards.append(_Card(number, header["bus"]))
            stack = []
            continue
        found = _FIELD.match(line.rstrip())
        if found is None or line.startswith("="):
            continue
        depth, key, value = len(found["indent"]), _word(found["key"]), found["value"]
        if not cards:
            at = _time(value) if key == "timestamp" and value else at
            continue
        while stack and stack[-1][0] >= depth:
            stack.pop()
        stack.append((depth, key))
        if value is not None and len(stack) <= MAX_DEPTH:
            cards[-1].take("/".join(word for _, word in stack), value, number)
    if not cards and not lost:
        raise NotReadable("nvidia-smi's report has no GPU in it: cut off?")
    return [*(card.reading(name, at) for card in cards), *lost]


def read_smi_xml(text: str, name: str) -> list[CardReading]:
    """Every card of a report.

    Raises:
        NotReadable: it is no XML to its end, or there is no card in it.
    """
    cards: list[_Card] = []
    at: float | None = None
    for path, value, line, bus in _elements(text):
        if path == "timestamp":
            at = _time(value)
        elif path == "gpu":
            cards.append(_Card(line, bus))
        elif path.startswith("gpu/") and cards:
            cards[-1].take(path.removeprefix("gpu/"), value, line)
    if not cards:
        raise NotReadable("nvidia-smi's report has no GPU in it")
    return [card.reading(name, at) for card in cards]


def _elements(text: str) -> Iterator[tuple[str, str, int, str]]:
    """Elements in order: path under the root, text, line, and the id where a card begins.

    Raises:
        NotReadable: no XML, or one that declares entities, which nvidia-smi never does.
    """
    found: list[tuple[str, str, int, str]] = []
    stack: list[str] = []
    words: list[str] = []
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        stack.append(_word(tag))
        words.clear()
        if len(stack) > MAX_DEPTH:
            raise NotReadable("nested too deep for nvidia-smi's report")
        if len(stack) == 2 and tag == "gpu":
            found.append(("gpu", "", parser.CurrentLineNumber, attributes.get("id", "")))

    def end(tag: str) -> None:
        path, value = "/".join(stack[1:]), "".join(words).strip()
        stack.pop()
        words.clear()
        if value and path != "gpu":
            found.append((path, value, parser.CurrentLineNumber, ""))

    def refuse(*_: object) -> None:
        raise NotReadable("declares entities: not nvidia-smi's report")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = words.append
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise NotReadable(f"not XML from line {error.lineno} on: cut off?") from None
    yield from found


class _Card:
    """One card while its fields come in."""

    def __init__(self, line: int, bus: str) -> None:
        self._line, self._bus = line, bus
        self._told = Told()
        self._who: dict[str, str] = {}
        self._pids: list[int] = []

    def take(self, path: str, value: str, line: int) -> None:
        leaf = path.rsplit("/", 1)[-1]
        if path in ("gpu_uuid", "uuid", "minor_number", "product_name"):
            self._who[path.removeprefix("gpu_")] = value.strip()
        elif leaf in ("process_id", "pid") and value.strip().isdigit():
            self._pids.append(int(value))
        else:
            self._told.take(path, value, line)

    def reading(self, file: str, at: float | None) -> CardReading:
        minor = self._who.get("minor_number", "")
        card = Card(
            index=int(minor) if minor.isdigit() else None,
            uuid=self._who.get("uuid"),
            bus=short_bus(self._bus) if self._bus else None,
            name=self._who.get("product_name"),
        )
        told = self._told
        return CardReading(
            card,
            file,
            told.values,
            told.lines,
            self._line,
            at,
            throttle=frozenset(told.throttle),
            denied=tuple(sorted(told.denied)),
            lost=told.lost,
            pids=tuple(self._pids),
        )


def _word(key: str) -> str:
    return _NOT_WORD.sub("_", key.lower()).strip("_")


def _time(text: str) -> float | None:
    """nvidia-smi prints its host's local time without a zone: taken as this machine's."""
    for form in _TIMES:
        try:
            return time.mktime(time.strptime(text.strip(), form))
        except ValueError:
            continue
    return None
