"""What a rank did in a step, counted: kernels by name, collectives, calls for device memory, output."""

from collections.abc import Callable

import numpy as np

from harness.diagnose.traces import names
from harness.diagnose.traces.breakdown import Work
from harness.diagnose.traces.collectives import Collectives
from harness.diagnose.traces.intervals import Bools, Cover, cover
from harness.diagnose.traces.recording import Recording
from harness.diagnose.traces.spans import Columns, Numbers


def flags(numbers: Numbers, is_so: Callable[[str], bool]) -> Bools:
    """One flag a number: what a test says of its name."""
    return np.array([is_so(str(name)) for name in numbers.of], np.bool_)


def work_of(recording: Recording, steps: Columns, thread: int, collectives: Collectives) -> Work:
    """Averages over `steps`. Of CPU operations those of `thread` count, the nested ones too."""
    inside = cover(steps.begin, steps.end)
    count = len(steps)
    if recording.on_device:
        spans, numbers, is_matrix = (
            recording.kernels.columns(),
            recording.kernel_names,
            names.is_matrix_kernel,
        )
    else:
        spans, numbers, is_matrix = recording.ops.columns(), recording.op_names, names.is_matrix_op
        spans = spans.where(spans.thread == thread)
    allocations = _during(recording.allocations.columns(), inside)
    logging = recording.logging.columns()
    logging = _during(logging.where(logging.thread == thread), inside)
    written = cover(logging.begin, logging.end)
    return Work(
        by_name=_by_name(_during(spans, inside), numbers, is_matrix, count),
        collectives=len(collectives.spans) / count,
        nelems=collectives.nelems / count,
        allocations=max(len(allocations), _resized(recording, inside)) / count,
        allocation_s=float((allocations.end - allocations.begin).sum()) / count / 1e9,
        logging_s=float(written.length(steps.begin, steps.end).sum()) / count / 1e9,
    )


def _by_name(
    spans: Columns, numbers: Numbers, is_matrix: Callable[[str], bool], steps: int
) -> dict[str, tuple[float, float, bool]]:
    calls = np.bincount(spans.label, minlength=len(numbers.of))
    seconds = np.bincount(spans.label, weights=spans.end - spans.begin, minlength=len(numbers.of)) / 1e9
    return {
        str(name): (calls[i] / steps, seconds[i] / steps, is_matrix(str(name)))
        for name, i in numbers.of.items()
        if calls[i]
    }


def _resized(recording: Recording, inside: Cover) -> int:
    """How often the allocator took device memory or gave some back, from the profiler's memory events."""
    held = recording.reserved.columns()
    changes = 0
    for device in np.unique(held.label).tolist():
        mine = held.where(held.label == device)
        mine = mine.where(np.argsort(mine.begin, kind="stable"))
        changed = np.concatenate(([False], np.diff(mine.end) != 0)) if len(mine) else np.zeros(0, np.bool_)
        changes += int((changed & inside.holds(mine.begin)).sum())
    return changes


def _during(spans: Columns, inside: Cover) -> Columns:
    return spans.where(inside.holds(spans.begin))
