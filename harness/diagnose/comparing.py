"""`drill diagnose NOW --baseline THEN`: traces with traces, runs with runs."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from harness.bundle.layout import is_bundle
from harness.diagnose.flight.parallel import OnProgress
from harness.diagnose.traces.find import find_traces, open_trace
from harness.model.comparison import ComparedResult
from harness.model.errors import PrerequisiteError, UsageError

SideKind = Literal["traces", "runs"]

_RECORD_BYTES = 1 << 18
_RECORDS = (".jsonl", ".log", ".txt", ".out", ".err", ".json", ".gz")
_STEP = re.compile(rb"""["']?\b(global_)?(step|iteration)\b["']?\s*[:=]?\s*\d""", re.IGNORECASE)
"""A step's number, as JSON lines and the logs of the known frameworks write it."""

_WHAT = {
    "traces": "profiler traces",
    "runs": "a run (a bundle, or step records)",
}


def compare(
    now: Sequence[Path],
    then: Path,
    world_size: int | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> ComparedResult:
    """Compare what lies under `now` with what lies under `then`, and say what changed.

    `world_size` counts only where the files do not record it.

    Raises:
        PrerequisiteError: a path does not exist, or holds neither traces nor step records.
        UsageError: one side is traces, the other a run.
    """
    sides = {path: _kind(path) for path in (*now, then)}
    kinds = set(sides.values())
    nothing = [path for path, kind in sides.items() if kind is None]
    if kinds == {"traces"}:
        from harness.diagnose.traces.compare import compare_traces

        return compare_traces(now, then, world_size, on_progress)
    if kinds == {None} or (nothing and "traces" in kinds):
        raise PrerequisiteError(_nothing(nothing[0]))
    if "traces" in kinds:
        raise UsageError(
            "; ".join(f"{path} is {_WHAT[kind]}" for path, kind in sides.items() if kind)
            + ": give traces on both sides, or runs on both sides"
        )
    # A side that does not look like a run from outside may still be one: its own reader knows all formats.
    from harness.diagnose.signals.regress import compare_runs

    return compare_runs(now, then, world_size)


def _kind(path: Path) -> SideKind | None:
    """What one path holds. A folder with traces in it is traces, unless it is a bundle.

    Raises:
        PrerequisiteError: it does not exist.
    """
    if not path.exists():
        raise PrerequisiteError(f"{path} does not exist: give profiler traces, or a run")
    if is_bundle(path):
        return "runs"
    if find_traces([path]):
        return "traces"
    return "runs" if any(_has_steps(file) for file in _records(path)) else None


def _nothing(path: Path) -> str:
    if (path / "latest").exists():
        return f"{path}: this folder holds runs; give one of them, for instance {path / 'latest'}"
    expected = "profiler traces (.json, .json.gz), a bundle, or step records"
    return f"{path}: nothing readable here: expected {expected}"


def _records(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        if file.suffix in _RECORDS and file.is_file():
            yield file


def _has_steps(path: Path) -> bool:
    try:
        with open_trace(path) as file:
            return bool(_STEP.search(file.head(_RECORD_BYTES)))
    except OSError:
        return False
