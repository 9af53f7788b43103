"""The kernel log: whom it killed for memory."""

import re
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class KernelEvent:
    """One line that says something about one process. `kind` is oom."""

    kind: str
    pid: int
    text: str
    file: str
    line: int


_OOM = re.compile(r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process (\d+)")
"""Source: mm/oom_kill.c. Kernels before 5.x say "Kill process" and "Killed process" in two lines."""


def read_kernel_log(path: Path, root: Path) -> tuple[KernelEvent, ...]:
    """Events of a saved kernel log (dmesg's own format); empty where there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ()
    name = str(path.relative_to(root))
    return tuple(
        KernelEvent("oom", int(found[1]), line.strip(), name, number)
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _OOM.search(line))
    )
