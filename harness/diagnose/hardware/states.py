"""Readings of one card or port over time: its newest state, and what its counters grew by in between."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.diagnose.hardware.fields import COUNTERS
from harness.diagnose.hardware.reading import Card, CardReading, PortReading


@dataclass(frozen=True)
class CardState:
    """One card. `grown`: by counter, where two readings show it; `ranks`: who computes there, if known."""

    newest: CardReading
    grown: Mapping[str, float]
    readings: int
    ranks: tuple[int, ...] = ()

    @property
    def card(self) -> Card:
        """Which one."""
        return self.newest.card

    def value(self, name: str) -> float | None:
        """A field as it was last read."""
        return self.newest.values.get(name)


@dataclass(frozen=True)
class PortState:
    """One port. `grown`: by counter, where two readings show it."""

    newest: PortReading
    grown: Mapping[str, float]
    readings: int


def card_states(readings: Sequence[CardReading]) -> list[CardState]:
    """One state a card, in the order of index and address. A card that is named in two ways is one."""
    groups: dict[tuple[str, ...], list[CardReading]] = {}
    for reading in readings:
        groups.setdefault(_same(reading.card, groups), []).append(reading)
    states = []
    for group in groups.values():
        ordered = sorted(group, key=lambda r: (r.at or r.order, r.file))
        first, last = ordered[0], ordered[-1]
        grown = _grown(first.values, last.values, COUNTERS) if len(ordered) > 1 else {}
        known = dataclasses.replace(last, card=_identity(ordered))
        states.append(CardState(known, grown, len(ordered)))
    return sorted(states, key=lambda s: (s.card.host or "", s.card.index or 0, s.card.bus or ""))


def _identity(readings: Sequence[CardReading]) -> Card:
    """All that any of a card's readings says of which one it is."""
    cards = [reading.card for reading in readings]
    return Card(
        next((c.host for c in cards if c.host), None),
        next((c.index for c in cards if c.index is not None), None),
        next((c.uuid for c in cards if c.uuid), None),
        next((c.bus for c in cards if c.bus), None),
        next((c.name for c in cards if c.name), None),
    )


def _same(card: Card, known: Mapping[tuple[str, ...], list[CardReading]]) -> tuple[str, ...]:
    """The key of the card that this one is: by UUID, else by address on its host."""
    if card.key in known:
        return card.key
    for key, readings in known.items():
        other = readings[0].card
        one_host = not (card.host and other.host) or card.host == other.host
        both = bool(card.uuid and other.uuid)
        if one_host and not both and card.bus and card.bus == other.bus:
            return key
    return card.key


def port_states(readings: Sequence[PortReading]) -> list[PortState]:
    """One state a port."""
    groups: dict[tuple[str, ...], list[PortReading]] = {}
    for reading in readings:
        groups.setdefault(reading.key, []).append(reading)
    states = []
    for group in groups.values():
        ordered = sorted(group, key=lambda r: (r.at or r.order, r.file))
        names = frozenset(ordered[0].values) & frozenset(ordered[-1].values)
        grown = _grown(ordered[0].values, ordered[-1].values, names) if len(ordered) > 1 else {}
        states.append(PortState(ordered[-1], grown, len(ordered)))
    return states


def _grown(first: Mapping[str, float], last: Mapping[str, float], names: frozenset[str]) -> dict[str, float]:
    """What counters grew by. One that is smaller than before began anew, and all it shows has grown since."""
    both = names & first.keys() & last.keys()
    return {name: d if (d := last[name] - first[name]) >= 0 else last[name] for name in both}
