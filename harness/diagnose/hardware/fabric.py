"""InfiniBand's counters: `perfquery`, `grep . /sys/class/infiniband/*/ports/*/counters/*`, a copied tree."""

import re
from collections.abc import Iterable

from harness.diagnose.hardware.reading import PortReading
from harness.diagnose.hardware.smi import NotReadable

_PERFQUERY = re.compile(r"^# Port (?:extended )?counters: Lid (?P<lid>\d+) port (?P<port>\d+)")
_DOTTED = re.compile(r"^(?P<name>[A-Za-z]\w+):\.+(?P<value>\d+)\s*$")
_SYSFS = re.compile(
    r"(?:^|/)infiniband/(?P<adapter>[^/]+)/ports/(?P<port>\d+)/(?:(?:hw_)?counters/)?(?P<name>\w+)"
)
_VALUE = re.compile(r":\s*(?P<value>\S.*?)\s*$")
_RDMA = re.compile(r"^link (?P<adapter>[\w.-]+)/(?P<port>\d+) (?P<rest>.+)$")
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")

_CAMEL = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "port_rcv_switch_relay_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "VL15Dropped": "VL15_dropped",
    "PortXmitWait": "port_xmit_wait",
    "PortXmitData": "port_xmit_data",
    "PortRcvData": "port_rcv_data",
}
"""perfquery's names, and the kernel's. Source: Documentation/ABI/stable/sysfs-class-infiniband."""

ERRORS = frozenset(
    (
        *("symbol_error", "link_error_recovery", "port_rcv_errors", "port_rcv_remote_physical_errors"),
        *("port_xmit_discards", "local_link_integrity_errors", "excessive_buffer_overrun_errors"),
        *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "implied_nak_seq_err"),
        *("roce_slow_restart", "rx_icrc_encapsulated"),
    )
)
"""Counters of which any growth is a bad link or a congested one."""

LINK_DOWN = "link_downed"
RATE = "rate_gb_s"


def is_fabric(head: str) -> bool:
    """Whether a text begins as one of the three do."""
    first = head[:4000]
    return any(
        _PERFQUERY.match(line) or _SYSFS.search(line) or _RDMA.match(line) for line in first.splitlines()
    )


def read_fabric(text: str, name: str) -> list[PortReading]:
    """Every port of a report.

    Raises:
        NotReadable: no counter in it.
    """
    ports: dict[tuple[str, int], _Port] = {}
    current: _Port | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if begun := _PERFQUERY.match(line):
            key = (f"LID {begun['lid']}", int(begun["port"]))
            current = ports.setdefault(key, _Port())
        elif current is not None and (dotted := _DOTTED.match(line)):
            current.take(_CAMEL.get(dotted["name"], dotted["name"]), dotted["value"], number)
        elif where := _SYSFS.search(line):
            value = _VALUE.search(line, where.end())
            if value:
                key = (where["adapter"], int(where["port"]))
                ports.setdefault(key, _Port()).take(where["name"], value["value"], number)
        elif link := _RDMA.match(line):
            words = link["rest"].split()
            port = ports.setdefault((link["adapter"], int(link["port"])), _Port())
            for word, value_ in zip(words[::2], words[1::2], strict=False):
                port.take(word, value_, number)
    return _readings(ports, name)


def read_tree(files: Iterable[tuple[str, str]], name: str) -> list[PortReading]:
    """A copied ``/sys/class/infiniband``: pairs of a file's path and what is in it."""
    ports: dict[tuple[str, int], _Port] = {}
    for path, text in files:
        if where := _SYSFS.search(path):
            ports.setdefault((where["adapter"], int(where["port"])), _Port()).take(where["name"], text, 0)
    return _readings(ports, name)


def is_tree_file(path: str) -> bool:
    """Whether a path is one of a copied tree's counters."""
    return _SYSFS.search(path) is not None


def _readings(ports: "dict[tuple[str, int], _Port]", name: str) -> list[PortReading]:
    found = [
        PortReading(adapter, port, name, told.values, told.lines)
        for (adapter, port), told in ports.items()
        if told.values
    ]
    if not found:
        raise NotReadable("no counter of a port in it")
    return found


class _Port:
    """One port while its counters come in."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.lines: dict[str, int] = {}

    def take(self, name: str, text: str, line: int) -> None:
        if name == "rate" and (rate := _RATE.search(text)):
            name, text = RATE, rate[1]
        try:
            self.values[name] = float(text)
        except ValueError:
            return
        if line:
            self.lines[name] = line
