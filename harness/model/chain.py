"""`drill/watchdog/1`: from a collective's timeout to a file of every rank, link by link."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SCHEMA = "drill/watchdog/1"

LINKS = ("timeout", "first_signal", "store_signal", "monitor_thread", "files")
"""In the order in which they follow one another."""


@dataclass(frozen=True)
class Link:
    """One link. `took_s`: from the link before it, seconds; None where either's time is not known.

    `ranks`: those in which it was seen, `missing` those in which it should have been.
    """

    ok: bool
    says: str
    ranks: str = ""
    missing: str = ""
    took_s: float | None = None


@dataclass(frozen=True)
class WatchdogChain:
    """What became of a timeout.

    `first`: the rank that signalled first; `initiators`: those whose own watchdog did; `observers`: those
    that saw the signal in the store. `links`: by name, in the order of `LINKS`.
    """

    links: Mapping[str, Link] = field(default_factory=dict)
    first: int | None = None
    initiators: str = ""
    observers: str = ""
    schema: str = SCHEMA

    @property
    def whole(self) -> bool:
        """Whether every link held."""
        return tuple(self.links) == LINKS and all(link.ok for link in self.links.values())

    @property
    def broken(self) -> tuple[str, ...]:
        """What each link that did not hold says, the first first."""
        return tuple(f"{name}: {link.says}" for name, link in self.links.items() if not link.ok)
