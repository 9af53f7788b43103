"""Times of many log files on one clock: `FileClock` reads each, `align` ties them, `first` orders."""

from harness.diagnose.logs.clocks_align import (
    MAX_UNCERTAINTY_S,
    Alignment,
    Anchor,
    Event,
    First,
    Offset,
    align,
)
from harness.diagnose.logs.clocks_file import Clock, FileClock, Moment

__all__ = [
    "MAX_UNCERTAINTY_S",
    "Alignment",
    "Anchor",
    "Clock",
    "Event",
    "FileClock",
    "First",
    "Moment",
    "Offset",
    "align",
]
