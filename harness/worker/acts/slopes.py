"""A job that goes on, slower: one rank computes longer, waits for its data, or floods its log."""

import logging
import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import Dataset

from harness.worker.acts.memory import on_device
from harness.worker.faults import Act, Fault
from harness.worker.workloads.matrices import Matrices
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


RIVAL_WIDTH, RIVAL_SHARE = 4096, 2.0
"""A competing kernel's matrices fill a device; so many steps' computing time it keeps going, and anew."""


@dataclass
class CompetingKernel(Act):
    """From its step on, another stream of the same process keeps the rank's device busy.

    On a shared card only this process's turns are contended: its peers compute as before.
    """

    _busy_s: float = field(default=0.0, init=False)
    _rival: "Rival | None" = field(default=None, init=False)

    def configure(self, options: Options) -> None:
        self._busy_s = options.compute_ms / 1000 * RIVAL_SHARE

    def at_step(self, fault: Fault, step: int) -> None:
        if not fault.since(step):
            return
        if self._rival is None:
            if not on_device():
                raise RuntimeError("a competing kernel needs a GPU: run it with --backend nccl")
            self._rival = Rival(torch.device("cuda", torch.cuda.current_device()), self._busy_s)
            fault.fire()
        self._rival.keep_going()


class Rival:
    """Matrix products on a stream of their own, without ever waiting for them."""

    def __init__(self, device: torch.device, busy_s: float) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            self._matrix = torch.randn(RIVAL_WIDTH, RIVAL_WIDTH, device=device, dtype=torch.bfloat16)
            self._out = torch.empty_like(self._matrix)
        self._count = max(1, round(busy_s / Matrices(device, RIVAL_WIDTH, torch.bfloat16).one_s))
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._done.record(self._stream)

    def keep_going(self) -> None:
        """Enqueue the next lot once the last is done: a queue that only grew would stall the end."""
        if not self._done.query():  # type: ignore[no-untyped-call]
            return
        with torch.cuda.stream(self._stream):
            for _ in range(self._count):
                torch.mm(self._matrix, self._matrix, out=self._out)
            self._done.record(self._stream)


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
