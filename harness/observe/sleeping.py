"""How long a main thread has not run at all, from the scheduler's own books."""

import re
from pathlib import Path

_LAST_RUN = re.compile(r"^se\.exec_start\s*:\s*([\d.]+)", re.MULTILINE)
"""kernel/sched/debug.c: when the thread last ran, milliseconds of the scheduler's clock."""


def asleep_s(pid: int) -> float | None:
    """Seconds since the main thread of a process last ran; None where the kernel does not say.

    Read beside our own, which runs now: the scheduler's clock is not that of anything else.
    """
    theirs, ours = _last_run_ms(Path(f"/proc/{pid}/sched")), _last_run_ms(Path("/proc/self/sched"))
    return None if theirs is None or ours is None else max(0.0, (ours - theirs) / 1e3)


def _last_run_ms(path: Path) -> float | None:
    try:
        found = _LAST_RUN.search(path.read_text())
    except OSError:
        return None
    return float(found.group(1)) if found else None
