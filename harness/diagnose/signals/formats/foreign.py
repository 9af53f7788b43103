"""What other people's records say beyond columns: timers, spans left open, and the whole of a reading."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.diagnose.signals.columns import StepColumns

LAST_RANK = -1
"""Stands for the last rank of the world until the world size is known: who prints Megatron's records."""


@dataclass(frozen=True)
class TimerRow:
    """The least and the greatest of one timer over all ranks, in one report.

    `step` is the iteration reported last before it, None if none was. `min` is NaN where only the greatest is
    printed (option ``max``), either is NaN where its half of the report is damaged. `min_rank` and `max_rank`
    are global, None where the report does not name them. `unit`: s, W, C, MHz, TF (TFLOP/s) or %.
    `line` counts from 1.
    """

    step: int | None
    name: str
    min: float
    max: float
    min_rank: int | None
    max_rank: int | None
    unit: str
    file: str
    line: int


class OpenSpan(NamedTuple):
    """What a rank had entered and not left when its file ends. `t`: unix seconds of that, NaN if unknown."""

    name: str
    step: int | None
    t: float
    file: str
    line: int


@dataclass(frozen=True)
class Foreign:
    """Everything that other people's records said.

    `columns`: one for each rank, attempt and format. Where the records of one attempt lie in several files,
    `file` is the one with most of them, and `line` is 0 for a step that only another file has.
    `timers`: in the order of files and lines. `open_spans`: by rank, the innermost of its last attempt.
    `world_size`: as stated, None if nothing states it. `complaints`: ``FILE: why``.
    """

    columns: tuple[StepColumns, ...] = ()
    timers: tuple[TimerRow, ...] = ()
    complaints: tuple[str, ...] = ()
    world_size: int | None = None
    open_spans: Mapping[int, OpenSpan] = field(default_factory=dict)
