"""Per-step records: one JSON object a line, one file a rank, appended at the end of every step."""

import os
import time
from pathlib import Path

from harness.bundle.codec import dump_line

SignalValue = int | float | str | bool | None


class Signals:
    """Append-only writer of one rank's step records.

    Never raises into training and never communicates: a record that cannot be written (disk full)
    is counted in `lost` and training goes on. Each line goes to the kernel in one write, so a killed
    rank loses at most the step it was in.
    """

    def __init__(self, path: Path | None, rank: int) -> None:
        self.lost = 0
        self._rank = rank
        self._fd: int | None = None
        self._last = time.perf_counter()
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError:
            self.lost += 1

    def start(self) -> None:
        """Restart the clock of the step that now begins."""
        self._last = time.perf_counter()

    def step(self, step: int, **fields: SignalValue) -> None:
        """Record one finished step. `fields` are the contract's signal names; step_time_s is measured."""
        now = time.perf_counter()
        record = {
            "t": time.time(),
            "step": step,
            "rank": self._rank,
            "step_time_s": now - self._last,
        }
        self._last = now
        if self._fd is None:
            return
        try:
            os.write(self._fd, dump_line({**record, **fields}))
        except (OSError, TypeError):
            self.lost += 1
