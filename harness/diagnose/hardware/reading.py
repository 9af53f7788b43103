"""What counters of cards and ports say at one moment, whatever tool printed them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Card:
    """One GPU, by whatever the evidence names it. `bus` is short (`short_bus`): ``3b00``."""

    host: str | None = None
    index: int | None = None
    uuid: str | None = None
    bus: str | None = None
    name: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two readings those of one card."""
        if self.uuid:
            return ("uuid", self.uuid)
        place = ("bus", self.bus) if self.bus else ("index", str(self.index))
        return (*place, self.host or "")

    def __str__(self) -> str:
        which = f"GPU {self.index}" if self.index is not None else f"GPU {self.bus or self.uuid}"
        return f"{which} of {self.host}" if self.host else which


@dataclass(frozen=True)
class CardReading:
    """One card at one moment. `values`: by our own names, see `fields`; `lines`: where each stands.

    `at`: unix seconds, None where the file does not say, and then `order` puts readings in sequence.
    `throttle`: reasons that hold its clocks down; `denied`: what the reader was not permitted to see; `lost`:
    the driver's words on a card that it does not reach; `pids`: processes on it.
    """

    card: Card
    file: str
    values: Mapping[str, float] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    line: int | None = None
    at: float | None = None
    order: float = 0.0
    throttle: frozenset[str] = frozenset()
    denied: tuple[str, ...] = ()
    lost: str | None = None
    pids: tuple[int, ...] = ()


@dataclass(frozen=True)
class PortReading:
    """One port of a network adapter at one moment; `adapter` is ``mlx5_0`` or a LID, `values` as in sysfs."""

    adapter: str
    port: int
    file: str
    values: Mapping[str, float] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    host: str | None = None
    at: float | None = None
    order: float = 0.0

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two readings those of one port."""
        return (self.host or "", self.adapter, str(self.port))

    def __str__(self) -> str:
        where = f" of {self.host}" if self.host else ""
        return f"{self.adapter} port {self.port}{where}"
