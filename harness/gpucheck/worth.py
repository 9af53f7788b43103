"""What to run first where time is short: what only a card can show, then what it shows otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.catalog.find import all_drills, find_drill


@dataclass(frozen=True)
class Wanted:
    """One run. `watchdog`: dumps are left to NCCL's watchdog; `sets`: the drill's own parameters."""

    drill: str
    mode: str
    watchdog: bool = False
    sets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name, also that of its archive."""
        return "-".join((self.drill, self.mode, *(["watchdog"] if self.watchdog else [])))

    @property
    def words(self) -> tuple[str, ...]:
        """What `drill run` is told."""
        sets = (word for one in self.sets for word in ("--set", one))
        flag = ("--wait-for-watchdog",) if self.watchdog else ()
        return (self.drill, "--mode", self.mode, *flag, *sets)


FIRST = (
    Wanted("fr_hang", "size"),
    Wanted("fr_hang", "skip"),
    Wanted("fr_hang", "skip", watchdog=True),
    Wanted("item_stall", "item"),
    Wanted("fr_hang", "type"),
    Wanted("fr_hang", "extra"),
    Wanted("fr_hang", "dtype"),
    Wanted("fr_hang", "size_more"),
    Wanted("item_stall", "stream"),
    Wanted("fragmentation", "split"),
    Wanted("slow_rank", "device"),
    Wanted("killed_rank", "sigkill"),
    Wanted("killed_rank", "device_oom"),
    Wanted("control", "none"),
    Wanted("item_stall", "item", watchdog=True),
    Wanted("slow_rank", "forward"),
)
"""The most valuable first: the modes of a hang, the watchdog's chain, then faults of the device itself."""

_SLOW = frozenset(("page",))
"""Drills of services beside the ranks, which a card changes nothing of."""


def in_order() -> tuple[Wanted, ...]:
    """All runs worth a card's time: those of `FIRST`, then every other drill in its default mode."""
    named = {(w.drill, w.mode) for w in FIRST}
    rest = [
        Wanted(spec.name, spec.default_mode)
        for spec in all_drills()
        if spec.name not in _SLOW and (spec.name, spec.default_mode) not in named
    ]
    return (*FIRST, *rest)


def chosen(names: Sequence[str]) -> tuple[Wanted, ...]:
    """The runs of these names, ``drill`` or ``drill-mode``, in the order of their worth.

    Raises:
        UsageError: there is no such drill.
    """
    for name in names:
        find_drill(name.split("-")[0])
    return tuple(w for w in in_order() if any(w.name == n or w.drill == n for n in names))
