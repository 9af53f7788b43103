"""A rank that lives and does not arrive: in host code, in a loader, at a lock, stopped."""

import ctypes
import logging
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from harness.worker.acts.memory import on_device
from harness.worker.faults import Act, Fault

FOR_EVER_S = 3600.0


class _Pending(torch.Tensor):
    """A value whose producer never finishes. Stands in for a tensor behind a kernel that never ends.

    Reading it on the host goes the way that every ``.item()`` goes, and blocks there.
    """

    @staticmethod
    def __new__(cls) -> "_Pending":
        made: _Pending = torch.Tensor._make_wrapper_subclass(cls, (), dtype=torch.float32)
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        time.sleep(FOR_EVER_S)


NEVER_CYCLES = 1 << 60
"""Some twenty years of a device's clock."""


def block_stream() -> None:
    """Put a kernel that never ends into the current stream: what is enqueued after it never starts."""
    torch.cuda._sleep(NEVER_CYCLES)  # type: ignore[no-untyped-call]


def _pending() -> torch.Tensor:
    """On a GPU a value behind a real kernel that sleeps; on a CPU the stand-in."""
    if on_device():
        block_stream()
        return torch.ones((), device="cuda")
    return _Pending()


class StallInItem(Act):
    """Reads a value that never comes: ``loss.item()``."""

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            loss = _pending()
            fault.fire()
            log_loss(loss)


class BlockStream(Act):
    """A kernel that never ends, before the step's collectives: the host goes on and issues them all.

    Its peers' kernels start and wait inside; its own are enqueued and never start. By then the batch is on
    the device: to copy it there, the host would wait behind that kernel.
    """

    def micro_batches(self, fault: Fault, step: int, count: int) -> int:
        if fault.due(step):
            if not on_device():
                raise RuntimeError("a blocked stream needs a GPU: run it with --backend nccl")
            fault.fire()
            block_stream()
        return count


def log_loss(loss: torch.Tensor) -> float:
    """The innocent line that so many training loops have."""
    return loss.item()


class Freeze(Act):
    """SIGSTOP, as a debugger, a batch system or a job in the background does it."""

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            fault.fire()
            os.kill(os.getpid(), signal.SIGSTOP)


class _BlockedRead(Dataset[Any]):
    """A dataset one of whose samples lies on storage that never answers: a named pipe nobody writes to."""

    def __init__(self, inner: Any, fault: Fault, first_blocked: int) -> None:
        self._inner = inner
        self._fault = fault
        self._first_blocked = first_blocked
        self._storage = Path(tempfile.gettempdir()) / f"drill-{os.getpid()}-shard-0001"

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, index: int) -> Any:
        if index >= self._first_blocked:
            self._read_shard()
        return self._inner[index]

    def _read_shard(self) -> bytes:
        os.mkfifo(self._storage)
        self._fault.fire()
        fd = os.open(self._storage, os.O_RDWR)
        # Its name is not needed once it is open, and so nothing is left behind.
        self._storage.unlink()
        return os.read(fd, 1)


class BlockLoader(Act):
    """A loader worker blocks in a read without a timeout."""

    def dataset(self, fault: Fault, dataset: Any, batch_size: int) -> Any:
        return _BlockedRead(dataset, fault, fault.step * batch_size)


class LockCycle(Act):
    """Two threads take two locks in opposite orders: the training loop and a writer of metrics."""

    def __init__(self) -> None:
        self._metrics_lock = threading.Lock()
        self._writer_lock = threading.Lock()

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            held = threading.Event()
            writer = threading.Thread(target=self._flush, args=(held,), name="metrics-writer", daemon=True)
            with self._metrics_lock:
                writer.start()
                held.wait()
                fault.fire()
                with self._writer_lock:
                    pass

    def _flush(self, held: threading.Event) -> None:
        with self._writer_lock:
            held.set()
            with self._metrics_lock:
                pass


class _StuckHandler(logging.Handler):
    """A log handler that ships records to a host which does not answer."""

    def emit(self, record: logging.LogRecord) -> None:
        ours, _theirs = os.pipe()
        os.read(ours, 1)


class StallInLogging(Act):
    """One line too many: the handler blocks."""

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            logger = logging.getLogger("drill.training")
            logger.addHandler(_StuckHandler())
            fault.fire()
            logger.warning("step %d: gradient norm is unusually high", step)


class HoldGil(Act):
    """Native code that sleeps without giving the GIL back: no other thread of the process runs."""

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step):
            library = ctypes.PyDLL(None)
            fault.fire()
            while True:
                library.sleep(int(FOR_EVER_S))


class LateShutdown(Act):
    """Training is over; this rank still writes its last report."""

    def after_training(self, fault: Fault) -> None:
        if fault.active:
            fault.fire()
            _upload_report()


def _upload_report() -> None:
    time.sleep(FOR_EVER_S)
