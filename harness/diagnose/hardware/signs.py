"""States of cards and ports to signs of trouble, each with its figure and where it stands.

Thresholds are DIAGNOSIS's: SM clock under 1500 MHz at more than 300 W, a hundred single-bit errors, any
double-bit one, a pending remap, an XID, a link 15 % under nominal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from harness.diagnose.hardware.fabric import ERRORS, LINK_DOWN, RATE
from harness.diagnose.hardware.reading import Card, CardReading, PortReading
from harness.diagnose.hardware.states import CardState, PortState
from harness.diagnose.logs.machine_lines import HARDWARE_XIDS, SOFTWARE_XIDS
from harness.model.diagnosis import Citation

FAULT, SLOW, NOTED = "fault", "slow", "noted"
"""Broken; slows whoever runs there; on record, and no cause by itself."""

LOW_CLOCK_MHZ, HIGH_POWER_W = 1500.0, 300.0
FAST_CARD_MHZ = 1600.0
"""Cards whose clock cannot pass this are not judged by LOW_CLOCK_MHZ."""

BELOW_PEERS = 0.85
BUSY_UTIL = 50.0
MANY_SBE = 100.0
MIN_PEERS = 3
MIN_LINK_BYTES = 1e6

HOLDS_DOWN = {
    "hw_slowdown": "the hardware holds its clocks down",
    "hw_thermal_slowdown": "it is too hot and its clocks are held down",
    "sw_thermal_slowdown": "it is hot and the driver holds its clocks down",
    "hw_power_brake_slowdown": "its power supply holds its clocks down",
}


@dataclass(frozen=True)
class Sign:
    """One thing that is wrong. `weight`: fault, slow or noted; `site`: throttle, link or memory."""

    weight: str
    site: str
    says: str
    citation: Citation
    card: Card | None = None
    ranks: tuple[int, ...] = ()
    host: str | None = None
    fresh: bool = False
    """Whether it came about while somebody looked: what was there before may be old."""


def card_signs(states: Sequence[CardState]) -> list[Sign]:
    """What is wrong with cards by themselves, and against their peers of the same name."""
    checks: tuple[Callable[[CardState], Iterator[Sign]], ...] = (
        _lost,
        _xid,
        _memory,
        _throttled,
        _pcie,
        _links,
    )
    own = [sign for state in states for check in checks for sign in check(state)]
    return [*own, *_below_peers(states)]


def _sign(
    state: CardState, weight: str, site: str, says: str, at: str | None = None, fresh: bool = False
) -> Sign:
    who = str(state.card)
    reading = state.newest
    return Sign(
        weight,
        site,
        f"{who}: {says}",
        cite_card(reading, f"{who}: {says}", at, state.ranks),
        state.card,
        state.ranks,
        state.card.host,
        fresh,
    )


def cite_card(reading: CardReading, says: str, at: str | None, ranks: tuple[int, ...]) -> Citation:
    """A reading as evidence; `at`: the field whose line it is."""
    line = reading.lines.get(at or "", reading.line)
    return Citation("gpu", says, reading.file, line, rank=ranks[0] if len(ranks) == 1 else None)


def _lost(state: CardState) -> Iterator[Sign]:
    if state.newest.lost is not None:
        yield _sign(state, FAULT, "memory", f"the driver does not reach it: {state.newest.lost}", fresh=True)


def _xid(state: CardState) -> Iterator[Sign]:
    code = int(state.value("xid") or 0)
    if code in HARDWARE_XIDS:
        yield _sign(state, FAULT, "memory", f"last XID {code}, of the hardware", "xid")
    elif code:
        whose = "usually the program's own" if code in SOFTWARE_XIDS else "not classed here"
        yield _sign(state, NOTED, "memory", f"last XID {code}, {whose}", "xid")


def _memory(state: CardState) -> Iterator[Sign]:
    double, grown = state.value("ecc_dbe") or 0, state.grown.get("ecc_dbe")
    if double and grown != 0:
        since = f", {grown:.0f} of them in between" if grown else ""
        says = f"{_errors(double, 'double-bit ECC error')}{since}"
        yield _sign(state, FAULT, "memory", says, "ecc_dbe", fresh=bool(grown))
    elif double:
        yield _sign(state, NOTED, "memory", f"{_errors(double, 'double-bit ECC error')}, none new", "ecc_dbe")
    if state.value("remap_failed"):
        yield _sign(state, FAULT, "memory", "a row of its memory could not be remapped", "remap_failed")
    if state.value("remap_pending"):
        yield _sign(state, FAULT, "memory", "rows to remap: it needs a reset", "remap_pending")
    rows = state.value("remap_uncorrectable") or 0
    if rows and not state.value("remap_pending"):
        yield _sign(
            state,
            NOTED,
            "memory",
            f"{rows:.0f} rows remapped for uncorrectable errors",
            "remap_uncorrectable",
        )
    single = state.grown.get("ecc_sbe", state.value("ecc_sbe") or 0)
    if single > MANY_SBE:
        yield _sign(state, NOTED, "memory", f"{single:.0f} single-bit ECC errors", "ecc_sbe")


def _errors(count: float, what: str) -> str:
    return f"{count:.0f} {what}{'' if count == 1 else 's'}"


def _throttled(state: CardState) -> Iterator[Sign]:
    clock, power = state.value("sm_clock_mhz"), state.value("power_w")
    at = (
        f" (SM clock {clock:.0f} MHz" + (f" at {power:.0f} W)" if power is not None else ")") if clock else ""
    )
    named = next((HOLDS_DOWN[r] for r in HOLDS_DOWN if r in state.newest.throttle), None)
    if named is not None:
        yield _sign(state, SLOW, "throttle", f"{named}{at}", "throttle")
        return
    fast = (state.value("sm_clock_max_mhz") or FAST_CARD_MHZ) >= FAST_CARD_MHZ
    if clock and power and fast and clock < LOW_CLOCK_MHZ and power > HIGH_POWER_W:
        yield _sign(state, SLOW, "throttle", f"throttled under load{at}", "sm_clock_mhz")
        return
    for name in ("thermal_violation", "power_violation"):
        if state.grown.get(name):
            what = "heat" if name == "thermal_violation" else "power"
            yield _sign(
                state, SLOW if what == "heat" else NOTED, "throttle", f"was held down for {what}", name
            )


def _pcie(state: CardState) -> Iterator[Sign]:
    width, full = state.value("pcie_width"), state.value("pcie_width_max")
    if width and full and width < full:
        yield _sign(state, SLOW, "link", f"PCIe x{width:.0f} of x{full:.0f}", "pcie_width")
    generation, best = state.value("pcie_gen"), state.value("pcie_gen_max")
    busy = (state.value("gpu_util") or 0) >= BUSY_UTIL
    if generation and best and generation < best and busy:
        says = f"PCIe generation {generation:.0f} of {best:.0f} under load"
        yield _sign(state, SLOW, "link", says, "pcie_gen")


def _links(state: CardState) -> Iterator[Sign]:
    for name, what in (("nvlink_errors", "NVLink errors"), ("pcie_replay", "PCIe replays")):
        total, grown = state.value(name) or 0, state.grown.get(name)
        if grown:
            yield _sign(state, SLOW, "link", f"{grown:.0f} more {what} in between", name, fresh=True)
        elif total and grown is None:
            yield _sign(
                state, NOTED, "link", f"{total:.0f} {what}; a second reading would tell if they grow", name
            )


def _below_peers(states: Sequence[CardState]) -> Iterator[Sign]:
    """A card whose clock under load, or whose NVLink traffic, is well below that of its like."""
    alike: dict[tuple[str | None, str], list[CardState]] = {}
    for state in states:
        alike.setdefault((state.card.host, state.card.name or ""), []).append(state)
    for group in alike.values():
        yield from _outliers(
            [s for s in group if (s.value("gpu_util") or 0) >= BUSY_UTIL],
            "sm_clock_mhz",
            "throttle",
            lambda own, usual: f"SM clock {own:.0f} MHz where its peers run at {usual:.0f}",
        )
        yield from _outliers(
            [s for s in group if s.value("nvlink_bytes") is not None],
            "nvlink_bytes",
            "link",
            lambda own, usual: (
                f"NVLink carries {own / 1e9:.1f} GB/s where its peers' carries {usual / 1e9:.1f}"
            ),
            MIN_LINK_BYTES,
        )


def _outliers(
    states: Sequence[CardState],
    name: str,
    site: str,
    words: Callable[[float, float], str],
    least: float = 0.0,
) -> Iterator[Sign]:
    values = [v for s in states if (v := s.value(name)) is not None]
    if len(values) < MIN_PEERS:
        return
    usual = median(values)
    low = [s for s in states if (v := s.value(name)) is not None and v < BELOW_PEERS * usual]
    if usual <= least or 2 * len(low) >= len(values):
        return
    for state in low:
        if site == "throttle" and any(r in state.newest.throttle for r in HOLDS_DOWN):
            continue
        yield _sign(state, SLOW, site, words(state.value(name) or 0.0, usual), name)


def port_signs(states: Sequence[PortState]) -> list[Sign]:
    """What is wrong with network ports: links that went down, errors that grow, a rate below its peers'."""
    return [*(sign for state in states for sign in _port(state)), *_slow_ports(states)]


def _port_sign(reading: PortReading, weight: str, says: str, at: str, fresh: bool = False) -> Sign:
    said = f"{reading}: {says}"
    cited = Citation("gpu", said, reading.file, reading.lines.get(at))
    return Sign(weight, "link", said, cited, None, (), reading.host, fresh)


def _port(state: PortState) -> Iterator[Sign]:
    newest = state.newest
    down = state.grown.get(LINK_DOWN)
    if down:
        yield _port_sign(
            newest, FAULT, f"the link went down {down:.0f} times in between", LINK_DOWN, fresh=True
        )
    elif down is None and newest.values.get(LINK_DOWN):
        says = f"the link has gone down {newest.values[LINK_DOWN]:.0f} times so far"
        yield _port_sign(newest, NOTED, says, LINK_DOWN)
    for name in sorted(ERRORS & newest.values.keys()):
        grown = state.grown.get(name)
        if grown:
            yield _port_sign(newest, SLOW, f"{name} grew by {grown:.0f}", name, fresh=True)
        elif grown is None and newest.values[name]:
            says = f"{name} is {newest.values[name]:.0f}; a second reading would tell if it grows"
            yield _port_sign(newest, NOTED, says, name)


def _slow_ports(states: Sequence[PortState]) -> Iterator[Sign]:
    rates = [rate for s in states if (rate := s.newest.values.get(RATE))]
    if len(rates) < MIN_PEERS:
        return
    usual = median(rates)
    for state in states:
        rate = state.newest.values.get(RATE)
        if rate is not None and rate < BELOW_PEERS * usual:
            yield _port_sign(state.newest, SLOW, f"runs at {rate:.0f} Gb/s, its peers at {usual:.0f}", RATE)
