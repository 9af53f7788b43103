"""A rank that dies, in the ways that ranks die."""

import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.worker.faults import Act, Fault

CGROUP = "DRILL_CGROUP"
"""A memory-limited cgroup's folder, made by the harness for a rank to move itself into."""


class CorruptShard(Exception):
    """What the `exception` mode raises: an error of the training code itself."""


@dataclass
class KillSelf(Act):
    """Ends by a signal, as the kernel or an operator ends a process."""

    signum: signal.Signals

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            fault.fire()
            os.kill(os.getpid(), self.signum)


class Segfault(Act):
    """Reads address 0."""

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            fault.fire()
            ctypes.string_at(0)


class Raise(Act):
    """Raises an exception that nothing handles."""

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            fault.fire()
            raise CorruptShard(f"step {step}: sample 17 of this rank's shard does not decode")


class LeaveEarly(Act):
    """Its data ran out first: the process ends, with exit code 0 and no word to the others."""

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            fault.fire()
            sys.stdout.flush()
            sys.stderr.flush()
            # A forked rank that merely returned would be kept by torch until the others are done too.
            os._exit(0)


class EatMemory(Act):
    """Moves into the memory-limited cgroup that the harness made, and allocates past its limit."""

    def at_step(self, fault: Fault, step: int) -> None:
        if not fault.due(step):
            return
        group = os.environ.get(CGROUP)
        if not group:
            raise RuntimeError(f"{CGROUP} is not set: run this mode through `drill run`")
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
        fault.fire()
        kept = []
        while True:
            kept.append(torch.ones(4 << 20))
