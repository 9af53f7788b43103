"""What a machine can see of what a person answers for: that documents are there, and new enough."""

import time
from glob import glob
from pathlib import Path

from harness.checklist.surroundings import Surroundings
from harness.model.checklist import ItemOutcome, Step, StepResult


def looked_at(step: Step, around: Surroundings) -> StepResult:
    """What a machine can see of what a person answers for: that the documents are there, and new enough."""
    for demand in step.files:
        try:
            why = _lacking(demand.path, demand.newer_than, demand.max_age_s)
        except OSError as error:
            why = f"{demand.path}: {error.strerror}"
        if why:
            return StepResult(step.name, ItemOutcome.FAIL, why)
    seen = ", ".join(demand.path for demand in step.files)
    why = f"waits for a signature{f'; there and new enough: {seen}' if seen else ''}"
    return StepResult(step.name, ItemOutcome.NOT_RUN, why)


def _lacking(name: str, newer_than: str | None, max_age_s: float | None) -> str | None:
    path = Path(name)
    if not path.is_file():
        return f"there is no {name}"
    if not path.read_bytes().strip():
        return f"{name} is empty"
    written = path.stat().st_mtime
    if max_age_s is not None and time.time() - written > max_age_s:
        return f"{name} was last changed {(time.time() - written) / 86400:.0f} days ago"
    # Not pathlib's: that one refuses what begins with a slash.
    others = sorted(glob(newer_than, recursive=True)) if newer_than else []  # noqa: PTH207
    for other in map(Path, others):
        if other != path and other.is_file() and other.stat().st_mtime > written:
            return f"{name} is older than {other}: what was learned there is not in it"
    return None
