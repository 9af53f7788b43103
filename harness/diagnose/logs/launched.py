"""How many ranks launchers name when a job ends: at least so many there were."""

from collections import defaultdict
from collections.abc import Sequence

from harness.diagnose.logs.event import Event

_PROCESSES = frozenset(("closing", "exit", "exit_ok", "block_exit"))

NEAR_LINES = 40
"""What one agent says of its processes stands so close together; an earlier end was that of others."""


def launched(events: Sequence[Event], *, tasks_are_ranks: bool) -> int:
    """Processes that agents close or miss in the last attempt, or srun's tasks where each is a rank.

    Agents on two machines may have processes of one number: those that are told apart are sure.
    """
    last = max((event.attempt for event in events), default=0)
    ends: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.what in _PROCESSES and event.attempt == last and "pid" in event.numbers:
            ends[event.file].append(event)
    pids = {pid for said in ends.values() for pid in _last_end(said)}
    tasks = {task for event in events if event.what == "task_end" for task in event.named}
    return max(len(pids), max(tasks, default=-1) + 1 if tasks_are_ranks else 0)


def _last_end(said: Sequence[Event]) -> set[int]:
    """The processes of the last end that a file tells of. `said` is in the order of lines."""
    pids, before = set[int](), said[-1].line
    for event in reversed(said):
        if before - event.line > NEAR_LINES:
            break
        pids.add(event.numbers["pid"])
        before = event.line
    return pids
