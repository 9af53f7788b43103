"""What one file of somebody's framework said, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.diagnose.signals.formats.builder import Piece
from harness.diagnose.signals.formats.foreign import OpenSpan, TimerRow

if TYPE_CHECKING:
    from harness.diagnose.signals.formats.torchtitan_spans import SpanLog


@dataclass(frozen=True)
class FileRecords:
    """What one file said. `world_size`: as stated, None if it is not. `complaints`: ``FILE: why``.

    `local_rank` is of whoever printed Megatron's iterations, where the global rank is not stated.
    """

    file: str
    pieces: tuple[Piece, ...] = ()
    timers: tuple[TimerRow, ...] = ()
    open_spans: tuple[tuple[int, OpenSpan], ...] = ()
    span_logs: tuple[SpanLog, ...] = ()
    complaints: tuple[str, ...] = ()
    world_size: int | None = None
    local_rank: int | None = None
