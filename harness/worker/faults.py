"""A fault that is armed on some ranks for one step, and that says when it fires."""

import os
import sys
import time
from dataclasses import dataclass, field

from harness.bundle.codec import dump_line
from harness.model.bundle import Injection
from harness.worker.environment import RankEnvironment


@dataclass
class Fault:
    """One fault of one rank. `active` only on the ranks that it was armed for."""

    name: str
    ranks: tuple[int, ...]
    step: int
    env: RankEnvironment
    _fired: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.active:
            self._log("armed")

    @property
    def active(self) -> bool:
        """Whether this rank is one that breaks."""
        return self.env.rank in self.ranks

    def due(self, step: int) -> bool:
        """Whether this rank breaks in this step."""
        return self.active and step == self.step

    def fire(self) -> None:
        """Log that the fault fires. Call it immediately before the act; the line is on disk on return."""
        if not self._fired:
            self._fired = True
            self._log("fired")

    def _log(self, event: str) -> None:
        if self.env.layout is None:
            return
        line = dump_line(Injection(event, time.time(), self.env.rank, self.name, self.step))
        try:
            fd = os.open(self.env.layout.injection, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            print(f"fault {event}, but not on record: {error}", file=sys.stderr, flush=True)
