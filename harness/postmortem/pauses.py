"""A job that stood still and went on by itself: nobody restarted it, and only its records show the gap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.signals.columns import StepColumns
from harness.diagnose.signals.thresholds import DEFAULTS

FLOOR_S = 2.0
"""Shorter gaps are slow steps (DIAGNOSIS, thresholds: the floor of a stall in a drill)."""


@dataclass(frozen=True)
class Pause:
    """`last`, `moved`: when the last step before it and the first after it ended, unix seconds."""

    last: float
    step: int
    moved: float


def longest_pause(columns: Sequence[StepColumns]) -> Pause | None:
    """The longest time in which no rank finished a step, if it is more than three median steps and 2 s."""
    if not columns:
        return None
    order = np.argsort(ends := np.concatenate([c.t for c in columns]), kind="stable")
    ends, steps = ends[order], np.concatenate([c.step for c in columns])[order]
    took = [c.values["step_time_s"] for c in columns if "step_time_s" in c.values]
    gaps = np.diff(ends)
    if not len(gaps):
        return None
    at = int(gaps.argmax())
    usual = float(np.nanmedian(np.concatenate(took))) if took else 0.0
    if gaps[at] <= max(FLOOR_S, DEFAULTS.hang_steps * usual):
        return None
    return Pause(float(ends[at]), int(steps[at]), float(ends[at + 1]))
