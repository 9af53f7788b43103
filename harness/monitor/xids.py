"""XID lines of a kernel log, as they are appended: how often each came, and when last."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_CARDS = 1024
"""Pairs of card and XID that are kept: a machine has a few cards and reports a few codes."""

_XID = re.compile(rb"NVRM: Xid \(?(?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,16})\)?: (?P<xid>\d{1,4})\b")
"""Source: NVIDIA, "Xid errors": ``NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus.``"""


@dataclass(frozen=True)
class Card:
    """One card of this host. `gpu`: its index, or its address where that is not known."""

    pci: str
    xid: str
    gpu: str = ""


@dataclass
class Xids:
    """Counts by card and code. `indexes`: PCI address as ``3b:00`` -> the card's index."""

    indexes: Mapping[str, str] = field(default_factory=dict)
    counts: dict[Card, int] = field(default_factory=dict)
    newest: dict[Card, float] = field(default_factory=dict)
    refused: int = 0

    def read(self, line: bytes, now: float) -> bool:
        """Take one line of a kernel log; whether it reports an XID. `now`: unix seconds of its arrival."""
        found = _XID.search(line)
        if found is None:
            return False
        pci = found["pci"].decode()
        card = Card(pci, found["xid"].decode(), self.indexes.get(short_address(pci), pci))
        if card not in self.counts and len(self.counts) >= MOST_CARDS:
            self.refused += 1
            return False
        self.counts[card] = self.counts.get(card, 0) + 1
        self.newest[card] = now
        return True

    @property
    def last(self) -> float | None:
        """When the newest one came, unix seconds."""
        return max(self.newest.values(), default=None)


def short_address(pci: str) -> str:
    """Bus and device of a PCI address, whatever domain and function it is written with: ``3b:00``."""
    parts = pci.lower().partition(".")[0].split(":")
    return ":".join(parts[-2:])
