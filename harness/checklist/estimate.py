"""What a run would do, and about how long it takes, said before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.checklist.surroundings import chosen, equipped, title_of
from harness.jobenv import JobEnvironment, relevant
from harness.model.checklist import Checklist, Item, Step

_WATCHDOG_DRILLS = frozenset(("fr_hang", "item_stall", "dataloader_stall", "lock_stall", "frozen_rank"))
_DUMP_WAIT = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
DEFAULT_DUMP_WAIT_S = 15.0
"""torch's own (FACTS); the watchdog then sleeps four times as long before it throws."""


@dataclass(frozen=True)
class Expected:
    """One step: what it would be run as, and about how many seconds."""

    item: Item
    title: str
    how: str
    seconds: float


def estimate(checklist: Checklist, job: JobEnvironment, backend: str, only: Sequence[str]) -> list[Expected]:
    """All steps of the items, in order.

    Raises:
        UsageError: no such item.
    """
    found = []
    for item in chosen(checklist, only):
        real = equipped(item, backend)
        found += [_expected(item, step, job, real=real) for step in item.steps]
    return found


def _expected(item: Item, step: Step, job: JobEnvironment, *, real: bool) -> Expected:
    taken = step if real else step.rehearsal
    if taken is None:
        return Expected(item, title_of(step), "cannot run here", 0.0)
    if taken.kind == "manual":
        return Expected(item, title_of(taken), "for a person", 0.0)
    seconds = taken.seconds
    if real and item.needs and taken.kind == "drill" and taken.name in _WATCHDOG_DRILLS:
        seconds += _watchdog_s(job)
    return Expected(item, title_of(taken), "for real" if real else "rehearsed", seconds)


def _watchdog_s(job: JobEnvironment) -> float:
    """What the job's own waits add to a hang on NCCL: dumps are waited for before ranks are stopped."""
    text = relevant(job.over({})).get(_DUMP_WAIT, "")
    return int(text) / 1000 if text.isdecimal() else DEFAULT_DUMP_WAIT_S if job.files else 0.0
