"""Which steps of a trace count."""

import numpy as np

from harness.diagnose.traces.recording import Recording
from harness.diagnose.traces.spans import Columns

WARM_UP_FROM = 3
"""From this many steps on, the first is left out: it carries the profiler's own start."""


def choose_steps(recording: Recording) -> tuple[Columns, tuple[str, ...]]:
    """The steps that count, by time, and what a reader should know about the choice.

    Without step annotations the whole trace is one step, with label -1. A trace that breaks off counts only
    the steps beyond whose end something computed: later ones may be cut.
    """
    marked = recording.steps.columns()
    busy = (recording.kernels if recording.on_device else recording.ops).columns()
    if (recording.impossible_steps and not len(marked)) or (recording.skipped and not len(busy)):
        # Of a trace whose times cannot be, what is left is no measurement.
        return marked.where(np.zeros(len(marked), np.bool_)), ()
    if not len(marked):
        return _whole(busy), ("no ProfilerStep in it (profiler.step() was never called): taken as one step",)
    steps = marked.where(np.argsort(marked.begin, kind="stable"))
    said = []
    if len(steps) >= WARM_UP_FROM:
        steps = steps.where(np.arange(len(steps)) > 0)
    if recording.broken is not None:
        reached = int(busy.begin.max(initial=0))
        whole = steps.where(steps.end <= reached)
        if len(whole) < len(steps):
            said.append(f"{len(steps) - len(whole)} of its steps are cut off and left out")
        steps = whole
    return steps, tuple(said)


def _whole(busy: Columns) -> Columns:
    one = np.ones(min(len(busy), 1), np.int64)
    return Columns(one * busy.begin.min(initial=2**62), one * busy.end.max(initial=0), one * 0, one * -1)
