"""What a drill does to a whole job from outside: as operators, batch systems and failing machines do it."""

import os
import platform
import signal
import time
from contextlib import suppress
from pathlib import Path

_SIGNALS = {"hangup": signal.SIGHUP, "lost": signal.SIGKILL}


def strike(what: str, agent: int, ranks: tuple[int, ...], launcher_log: Path) -> None:
    """Stop the job. `agent` and `ranks` are process ids.

    `what`: sigterm (of its agent), hangup (its terminal is gone), cancel (a batch system says so in the job's
    log, then signals every process of the step), lost (a node takes its ranks along; their agent is left to
    start them again).
    """
    if what == "cancel":
        with launcher_log.open("a") as log:
            now = time.strftime("%Y-%m-%dT%H:%M:%S")
            log.write(f"slurmstepd: error: *** STEP 1.0 ON {platform.node()} CANCELLED AT {now} ***\n")
    pids = {"cancel": (agent, *ranks), "lost": ranks}.get(what, (agent,))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, _SIGNALS.get(what, signal.SIGTERM))
