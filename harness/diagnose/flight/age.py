"""Snapshots of a running job are told from hangs by how long the waiting has lasted."""

import numpy as np

from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.table import State
from harness.diagnose.flight.waits import Head

STALL_FACTOR = 3.0
FLOOR_S = 1.5
"""Shorter waits are never a hang. Below the drills' own floor of 2 s, since dumps follow the notice."""


def waited_s(evidence: FlightEvidence, head: Head) -> float | None:
    """How long a rank had waited in its head when the dumps were taken; None where clocks do not say."""
    created = int(evidence.tables[head.rank].created_ns[head.at])
    written = max((t.written_s for t in evidence.tables.values() if t.written_s), default=None)
    if created <= 0 or written is None or written < created / 1e9 - 1.0:
        return None
    return max(0.0, written - created / 1e9)


def is_hang(evidence: FlightEvidence, heads: list[Head]) -> bool | None:
    """Whether those heads are older than three of their own periods and the floor; None if unknown."""
    answers: list[bool] = []
    for head in heads[:8]:
        waited = waited_s(evidence, head)
        if waited is not None:
            answers.append(waited > max(FLOOR_S, STALL_FACTOR * period_s(evidence, head.rank)))
    return any(answers) if answers else None


def period_s(evidence: FlightEvidence, rank: int) -> float:
    """The median time between repeats of a rank's last completed call: a step, or a part of one."""
    table = evidence.tables[rank]
    done = np.flatnonzero(table.state == State.DONE)
    if not len(done):
        return 0.0
    last = done[-1]
    same = (table.signature == table.signature[last]) & (table.stack == table.stack[last])
    times = table.created_ns[same & (table.state == State.DONE)]
    return float(np.median(np.diff(times))) / 1e9 if len(times) > 2 else 0.0
