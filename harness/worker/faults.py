"""A fault that is armed on some ranks for one step, says when it fires, and acts in any workload."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.bundle.codec import dump_line
from harness.model.bundle import Injection
from harness.worker.environment import RankEnvironment

if TYPE_CHECKING:
    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    from harness.worker.workloads.options import Options


class Act:
    """What a fault does, at the moment that it overrides. The session calls these on a culprit only.

    `fault.due(step)` says whether this is the step; `fault.fire()` must run right before the act.
    Where `everywhere` is set, nobody is a culprit and every rank acts.
    """

    everywhere = False
    attempt = 0
    """The start of the job in which the fault acts: 0, or 1 for what goes wrong in a restart."""

    def configure(self, options: "Options") -> None:
        """Before joining, on every rank: what the command line says."""

    def before_join(self, fault: "Fault") -> None:
        """Before the rank joins its process group."""

    def at_step(self, fault: "Fault", step: int) -> None:
        """At the top of a step, before anything of it was issued."""

    def dataset(self, fault: "Fault", dataset: Any, batch_size: int) -> Any:
        """The dataset that the workload's loader reads; returns the one to read instead."""
        return dataset

    def batch(self, fault: "Fault", step: int, batch: Any) -> Any:
        """What the loader gave for a step; returns what the workload gets."""
        return batch

    def micro_batches(self, fault: "Fault", step: int, count: int) -> int:
        """How many micro-batches the step runs."""
        return count

    def message(self, fault: "Fault", step: int, peer: int, x: Any) -> tuple[int, Any] | None:
        """To whom the rank sends what, or None where it does not send."""
        return peer, x

    def compute_s(self, fault: "Fault", step: int, phase: str, seconds: float) -> float:
        """How long the model's timed work takes; `phase` is forward or backward."""
        return seconds

    def gradients(self, fault: "Fault", step: int, gradients: Sequence["torch.Tensor"]) -> None:
        """The reduced gradients, which all replicas hold alike, before the optimizer uses them."""

    def position(self, fault: "Fault", samples: int) -> int:
        """Where the loader of a resumed rank goes on reading, in samples of its own shard."""
        return samples

    def storage(
        self, fault: "Fault", step: int, folder: Path, writer: "FileSystemWriter"
    ) -> "FileSystemWriter":
        """What writes this rank's part of the checkpoint after `step` into `folder`."""
        return writer

    def after_training(self, fault: "Fault") -> None:
        """After the last step, before shutdown."""


@dataclass
class Fault:
    """One fault of one rank. `active` only on the ranks that it was armed for, in its act's attempt only."""

    name: str
    ranks: tuple[int, ...]
    step: int
    env: RankEnvironment
    act: Act = field(default_factory=Act)
    _fired: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.active:
            self._log("armed")

    @property
    def active(self) -> bool:
        """Whether this rank is one that breaks, in the start of the job that its act is for."""
        concerned = self.env.rank in self.ranks or self.act.everywhere
        return concerned and self.env.attempt == self.act.attempt

    def due(self, step: int) -> bool:
        """Whether this rank breaks in this step."""
        return self.active and step == self.step

    def since(self, step: int) -> bool:
        """Whether this rank is broken by this step: for faults that last."""
        return self.active and step >= self.step >= 0

    def first_time(self, step: int) -> bool:
        """Whether this rank breaks in this step and has not done so yet: of many chances, the first."""
        return self.due(step) and not self._fired

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


def no_fault(env: RankEnvironment) -> Fault:
    """A fault that is armed nowhere."""
    return Fault("none", (), -1, env)
