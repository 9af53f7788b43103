"""A scrape of dcgm-exporter, in Prometheus' text format; field names of old and new versions."""

import re

from harness.diagnose.hardware.fields import DCGM, DCGM_REASONS, Told, reasons_of
from harness.diagnose.hardware.reading import Card, CardReading
from harness.diagnose.hardware.smi import NotReadable
from harness.diagnose.logs.census import short_bus

_SAMPLE = re.compile(
    r"^(?P<name>DCGM_(?:FI|EXP)_\w+)\{(?P<labels>[^}]*)\} (?P<value>[-+0-9.eE]+|NaN|\+Inf)"
    r"(?: (?P<ms>\d{10,16}))?\s*$"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"


def is_dcgm(head: str) -> bool:
    """Whether a text begins as a scrape does."""
    return "DCGM_FI_" in head or "DCGM_EXP_" in head


def read_dcgm(text: str, name: str) -> list[CardReading]:
    """Every card of a scrape; parts of a card (MIG instances) count as their card.

    Raises:
        NotReadable: no sample in it has the form of dcgm-exporter's.
    """
    told: dict[tuple[str, ...], Told] = {}
    cards: dict[tuple[str, ...], Card] = {}
    first: dict[tuple[str, ...], int] = {}
    at: float | None = None
    for number, line in enumerate(text.splitlines(), 1):
        sample = _SAMPLE.match(line)
        if sample is None:
            continue
        labels = dict(_LABEL.findall(sample["labels"]))
        card = _card(labels)
        if sample["ms"]:
            at = max(at or 0.0, int(sample["ms"]) / 1000)
        try:
            value = float(sample["value"])
        except ValueError:
            continue
        cards.setdefault(card.key, card)
        first.setdefault(card.key, number)
        _take(told.setdefault(card.key, Told()), sample["name"], value, labels, number)
    if not cards:
        raise NotReadable("no sample of a GPU in it: not dcgm-exporter's scrape, or cut off")
    return [
        CardReading(
            card,
            name,
            told[key].values,
            told[key].lines,
            first[key],
            at,
            throttle=frozenset(told[key].throttle),
        )
        for key, card in cards.items()
    ]


def _take(told: Told, name: str, value: float, labels: dict[str, str], line: int) -> None:
    if value != value:  # not a number: the field is blank
        return
    if name in DCGM_REASONS:
        for reason in reasons_of(int(value)):
            told.reason(reason, line)
    elif name == _XID_COUNT:
        if value > 0 and labels.get("xid", "").isdigit():
            told.add("xid", float(labels["xid"]), line)
    elif name in DCGM:
        told.add(DCGM[name], value, line)


def _card(labels: dict[str, str]) -> Card:
    index = labels.get("gpu", "")
    bus = labels.get("pci_bus_id", "")
    return Card(
        host=labels.get("Hostname") or labels.get("hostname") or None,
        index=int(index) if index.isdigit() else None,
        uuid=labels.get("UUID") or labels.get("uuid") or None,
        bus=short_bus(bus) if bus else None,
        name=labels.get("modelName") or None,
    )
