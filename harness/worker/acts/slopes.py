"""A job that goes on, slower: one rank computes longer, waits for its data, or floods its log."""

import logging
import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import Dataset

from harness.worker.faults import Act, Fault
from harness.worker.workloads.options import SHARES, Options

NEIGHBOURS = 6
"""Busy processes on the slowed rank's core: it gets one share of so many and one."""

FLOOD_LINES = 2000
"""Lines a step: some 200 KB, and some 20 ms of formatting and writing."""


@dataclass
class SlowCompute(Act):
    """From its step on, the rank computes `factor` times as long; all the excess is in one `phase`."""

    phase: str
    factor: float = field(default=1.0, init=False)

    def configure(self, options: Options) -> None:
        self.factor = options.factor

    def compute_s(self, fault: Fault, step: int, phase: str, seconds: float) -> float:
        if phase != self.phase or not fault.since(step):
            return seconds
        fault.fire()
        return seconds * (1 + (self.factor - 1) / SHARES[phase])


_SPIN = 'while kill -0 "$0" 2>/dev/null; do :; done'
"""Busy for as long as the rank lives, however that ends."""


@dataclass
class BusyNeighbours(Act):
    """Other processes keep the core busy to which the rank is bound."""

    _neighbours: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)

    def at_step(self, fault: Fault, step: int) -> None:
        if not fault.due(step):
            return
        core = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {core})
        command = ["sh", "-c", _SPIN, str(os.getpid())]
        # They inherit the binding. A session of their own: the kernel shares cores out by session first.
        self._neighbours = [subprocess.Popen(command, start_new_session=True) for _ in range(NEIGHBOURS)]
        fault.fire()

    def after_training(self, fault: Fault) -> None:
        for neighbour in self._neighbours:
            neighbour.kill()
            neighbour.wait()


class _SlowSamples(Dataset[Any]):
    """Samples that come from slow storage, from one of them on."""

    def __init__(self, inner: Any, fault: Fault, first_slow: int, seconds: float) -> None:
        self._inner = inner
        self._fault = fault
        self._first_slow = first_slow
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, index: int) -> Any:
        if index >= self._first_slow:
            self._fault.fire()
            self._read_from_slow_storage()
        return self._inner[index]

    def _read_from_slow_storage(self) -> None:
        time.sleep(self._seconds)


@dataclass
class SlowLoader(Act):
    """From its step on, a batch takes `factor` - 1 steps' computing time to load; on all ranks if so told."""

    everywhere: bool = False
    _batch_s: float = field(default=0.0, init=False)

    def configure(self, options: Options) -> None:
        self._batch_s = (options.factor - 1) * options.compute_ms / 1000

    def dataset(self, fault: Fault, dataset: Any, batch_size: int) -> Any:
        return _SlowSamples(dataset, fault, fault.step * batch_size, self._batch_s / batch_size)


class LogFlood(Act):
    """From its step on, a warning that was meant for once is said for every token."""

    def at_step(self, fault: Fault, step: int) -> None:
        if not fault.since(step):
            return
        logger = logging.getLogger("training.data")
        if not logger.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            logger.addHandler(handler)
            logger.propagate = False
        fault.fire()
        for token in range(FLOOD_LINES):
            logger.warning("step %d: token %d is not in the vocabulary, replaced", step, token)
