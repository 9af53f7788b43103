"""The kernel log of a machine: whom it killed for memory, and which card it gave up."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.diagnose.logs.machine_lines import xid

MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class KernelEvent:
    """One line about one process or card. `kind` is oom or xid; of an XID `code` and `bus` are known.

    `pid` is 0 where the line names none; `host`: whose kernel said it.
    """

    kind: str
    pid: int
    text: str
    file: str
    line: int
    code: int | None = None
    bus: str | None = None
    host: str | None = None


_OOM = re.compile(r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process (\d+)")
"""Source: mm/oom_kill.c. Kernels before 5.x say "Kill process" and "Killed process" in two lines."""


def read_kernel_log(path: Path, root: Path, host: str | None = None) -> tuple[KernelEvent, ...]:
    """Events of a saved kernel log (dmesg's own format); empty where there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ()
    name = str(path.relative_to(root))
    return tuple(_events(text, name, host))


def _events(text: str, name: str, host: str | None) -> Iterator[KernelEvent]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := _OOM.search(line):
            yield KernelEvent("oom", int(found[1]), line.strip(), name, number, host=host)
        elif "Xid" in line and (parsed := xid(line)) is not None:
            yield KernelEvent(
                "xid",
                parsed.numbers.get("pid", 0),
                line.strip(),
                name,
                number,
                parsed.numbers["xid"],
                parsed.words["bus"],
                host,
            )
