"""Counters of cards and ports, joined with who computes there, to signs of trouble."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.diagnose.hardware.find import Readings
from harness.diagnose.hardware.kernel import KernelEvent
from harness.diagnose.hardware.reading import Card, CardReading
from harness.diagnose.hardware.signs import FAULT, NOTED, SLOW, Sign, card_signs, port_signs
from harness.diagnose.hardware.states import CardState, PortState, card_states, port_states
from harness.diagnose.logs.census import short_bus
from harness.diagnose.logs.machine_lines import HARDWARE_XIDS, SOFTWARE_XIDS
from harness.model.bundle import RankRecord
from harness.model.diagnosis import Citation
from harness.model.ranks import format_ranks

Locate = Callable[[str | None, str], int | None]
"""The rank on a card by host and bus address, where something else knows it."""


@dataclass(frozen=True)
class HardwareResult:
    """What the hardware's own counters say. `signs`: the heaviest first."""

    cards: tuple[CardState, ...] = ()
    ports: tuple[PortState, ...] = ()
    signs: tuple[Sign, ...] = ()
    complaints: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def of(self, weight: str) -> tuple[Sign, ...]:
        """The signs of one weight."""
        return tuple(sign for sign in self.signs if sign.weight == weight)

    def of_rank(self, rank: int) -> tuple[Sign, ...]:
        """The signs of the card on which a rank computes."""
        return tuple(sign for sign in self.signs if rank in sign.ranks)

    @property
    def seen(self) -> str:
        """How much was looked at, for people."""
        cards, ports = len(self.cards), len(self.ports)
        parts = (
            f"{cards} GPU{'s' if cards > 1 else ''}" if cards else "",
            f"{ports} network port{'s' if ports > 1 else ''}" if ports else "",
        )
        return " and ".join(part for part in parts if part)


@dataclass(frozen=True)
class Job:
    """Who computes where: ranks by number, and what else knows a rank by its card's address."""

    ranks: Mapping[int, RankRecord] = field(default_factory=dict)
    locate: Locate = lambda host, bus: None

    def on(self, card: Card, pids: Sequence[int] = ()) -> tuple[int, ...]:
        """The ranks that compute on a card: by UUID, by process, by address, by number on a known host."""
        by_uuid = {r for r, record in self.ranks.items() if card.uuid and record.device_uuid == card.uuid}
        if by_uuid:
            return tuple(sorted(by_uuid))
        here = {r: record for r, record in self.ranks.items() if self._may_be_at(record, card.host)}
        by_pid = {r for r, record in here.items() if record.pid in pids}
        by_bus = {r for r, record in here.items() if _same_bus(record.device_bus, card.bus)}
        by_index = {
            r
            for r, record in here.items()
            if record.device_index is not None and record.device_index == card.index
        }
        found = by_pid or by_bus or by_index
        if not found and card.bus and (rank := self.locate(card.host, card.bus)) is not None:
            found = {rank}
        return tuple(sorted(found))

    def _may_be_at(self, record: RankRecord, host: str | None) -> bool:
        """Whether a rank may be on a host; where the evidence names none, only if there is one machine."""
        hosts = {r.host for r in self.ranks.values()}
        return record.host == host if host in hosts else len(hosts) == 1 and host is None


def _same_bus(one: str | None, other: str | None) -> bool:
    return bool(one and other) and short_bus(str(one)) == other


def analyse_hardware(readings: Readings, kernel: Sequence[KernelEvent], job: Job) -> HardwareResult:
    """Weigh all readings and the kernels' words on cards."""
    cards = [_placed(state, readings.cards, job) for state in card_states(readings.cards)]
    ports = port_states(readings.ports)
    signs = [*_kernel_signs(kernel, job), *card_signs(cards), *port_signs(ports)]
    weights = (FAULT, SLOW, NOTED)
    return HardwareResult(
        tuple(cards),
        tuple(ports),
        tuple(sorted(signs, key=lambda s: (weights.index(s.weight), not s.fresh))),
        tuple(readings.complaints),
        _missing(readings.cards),
    )


def _placed(state: CardState, readings: Sequence[CardReading], job: Job) -> CardState:
    pids = [pid for reading in readings if reading.card.bus == state.card.bus for pid in reading.pids]
    return dataclasses.replace(state, ranks=job.on(state.card, pids if state.card.bus else ()))


def _kernel_signs(kernel: Sequence[KernelEvent], job: Job) -> list[Sign]:
    """XIDs by class: of the hardware, usually of the program, or unknown; the first of each card and code."""
    first: dict[tuple[str | None, str | None, int | None], KernelEvent] = {}
    for event in kernel:
        if event.kind == "xid":
            first.setdefault((event.host, event.bus, event.code), event)
    signs = []
    for event in first.values():
        assert event.code is not None
        assert event.bus is not None
        card = Card(event.host, bus=short_bus(event.bus))
        ranks = job.on(card, (event.pid,) if event.pid else ())
        hardware = event.code in HARDWARE_XIDS
        whose = "of the hardware" if hardware else "usually the program's own"
        if not hardware and event.code not in SOFTWARE_XIDS:
            whose = "not classed here"
        says = f"{card}: XID {event.code}, {whose}"
        rank = ranks[0] if len(ranks) == 1 else None
        cited = Citation("kernel", event.text, event.file, event.line, rank=rank)
        weight = FAULT if hardware else NOTED
        signs.append(Sign(weight, "memory", says, cited, card, ranks, event.host, fresh=True))
    return signs


def _missing(readings: Sequence[CardReading]) -> tuple[str, ...]:
    """What readers were not permitted to see, a line a file."""
    denied: dict[str, set[str]] = {}
    for reading in readings:
        if reading.denied:
            denied.setdefault(reading.file, set()).update(reading.denied)
    return tuple(
        f"{file}: not permitted to read {', '.join(sorted(fields))}: run nvidia-smi as root, or in the host"
        for file, fields in denied.items()
    )


def ranks_text(sign: Sign) -> str:
    """Who computes on a sign's card, for people; empty where that is not known."""
    if not sign.ranks:
        return ""
    return (
        f" (rank {format_ranks(sign.ranks)})"
        if len(sign.ranks) == 1
        else f" (ranks {format_ranks(sign.ranks)})"
    )
