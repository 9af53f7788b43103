"""A rank's life: join the group, loop over steps, leave traces, shut down."""

import datetime
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from harness.model.bundle import GroupRecord
from harness.worker.devices import device_of, identify
from harness.worker.environment import RankEnvironment
from harness.worker.faults import Fault, no_fault
from harness.worker.recorder import DUMP_PREFIX, DumpTriggers, dump_triggers, start_symbolizer
from harness.worker.registration import Registration
from harness.worker.sharing import share_gpu_if_told
from harness.worker.signal_timing import Timer
from harness.worker.signals import Signals, SignalValue

if TYPE_CHECKING:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter


class Session:
    """One rank between joining and leaving. Use as a context manager.

    With a harness around it, the rank registers itself, records a line a step, dumps its Flight
    Recorder on request and when it ends badly, and logs the faults that it fires. Under plain torchrun
    all of that stays inert.
    """

    def __init__(
        self,
        env: RankEnvironment,
        registration: Registration,
        signals: Signals,
        triggers: DumpTriggers | None,
        fault: Fault,
        device: torch.device,
    ) -> None:
        self.env = env
        self.device = device
        """Where this rank's tensors live."""
        self.rank = env.rank
        self.world_size = env.world_size
        self._registration = registration
        self._signals = signals
        self._triggers = triggers
        self.fault = fault
        self._groups = 1
        self._fields: dict[str, SignalValue] = {}

    @classmethod
    def join(cls, backend: str = "gloo", timeout_s: float = 600.0, fault: Fault | None = None) -> "Session":
        """Register, arm the triggers, and join the default process group over torchrun's store.

        `fault` acts by itself at the top of its step, before joining and after training; what it does to
        data and micro-batches the workload asks for (`dataset`, `batch`, `micro_batches`).

        Raises:
            torch.distributed.DistError: the group does not form within `timeout_s`.
        """
        # Deprecated in torch 2.13 in favour of a name that older versions lack.
        warnings.filterwarnings("ignore", message=".*all_gather_into_tensor.*", category=FutureWarning)
        env = RankEnvironment.read()
        registration = Registration(env)
        shared = share_gpu_if_told(env.rank)
        if env.layout:
            os.environ[DUMP_PREFIX] = env.dump_prefix or str(env.layout.dump_prefix(env.attempt))
        triggers = dump_triggers(env.rank, os.environ.get)
        if triggers:
            triggers.backend = backend
            start_symbolizer()
            triggers.arm()
        fault = fault or no_fault(env)
        fault.act.before_join(fault)
        device = device_of(backend, env.local_rank, shared)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        # Both are read at import, which for a forked rank was before its variables were set.
        threads = os.environ.get("OMP_NUM_THREADS", "1")
        torch.set_num_threads(int(threads) if threads.isdecimal() and int(threads) else 1)
        dist.set_debug_level_from_env()  # type: ignore[attr-defined]
        timeout_s = env.collective_timeout_s or timeout_s
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout_s))
        path = env.layout.signal_file(env.attempt, env.rank) if env.layout else None
        session = cls(env, registration, Signals(path, env.rank, env.attempt), triggers, fault, device)
        registration.joined(_memberships(), identify(device))
        return session

    def arm(self, name: str, ranks: tuple[int, ...], step: int) -> Fault:
        """Arm a fault on `ranks` for one step of the loop."""
        return Fault(name, ranks, step, self.env)

    def steps(self, count: int, first: int = 0) -> Iterator[int]:
        """Yield step numbers `first` to `count` - 1; after each, record it and let rank 0 print one line.

        After the last one, or the one that the harness names, the rank says that it has trained: what
        follows is shutdown.
        """
        self._signals.start()
        done = count
        for step in range(first, count):
            self._note_new_groups()
            self.fault.act.at_step(self.fault, step)
            yield step
            self._signals.step(step, **self._fields)
            self._fields.clear()
            if self.rank == 0:
                print(f"step {step} done", flush=True)
            if self._ends_after(step):
                done = step + 1
                break
        if self.rank == 0:
            print(f"training completed: {done} steps", flush=True)
        self._registration.trained()
        self.fault.act.after_training(self.fault)

    def _ends_after(self, step: int) -> bool:
        """Whether the harness wants the job to end with this step, which it names well ahead of all ranks."""
        if self.env.layout is None:
            return False
        try:
            return step >= int(self.env.layout.last_step.read_text())
        except (OSError, ValueError):
            return False

    def _note_new_groups(self) -> None:
        """Register groups that were made since the last step: a dead member's cannot be asked for later."""
        count = len(dist.distributed_c10d._world.pg_names)
        if count != self._groups:
            self._groups = count
            self._registration.groups(_memberships())

    def dataset(self, dataset: Any, batch_size: int) -> Any:
        """The dataset to load from: the given one, unless this rank's fault replaces it."""
        return self.fault.act.dataset(self.fault, dataset, batch_size) if self.fault.active else dataset

    def batch(self, step: int, batch: Any) -> Any:
        """The batch to train on: the given one, unless this rank's fault spoils it."""
        return self.fault.act.batch(self.fault, step, batch)

    def micro_batches(self, step: int, count: int) -> int:
        """How many micro-batches to run: `count`, unless this rank's fault says otherwise."""
        return self.fault.act.micro_batches(self.fault, step, count)

    def message(self, step: int, peer: int, x: Any) -> tuple[int, Any] | None:
        """To whom to send what; None where this rank's fault keeps the message back."""
        return self.fault.act.message(self.fault, step, peer, x)

    def compute_s(self, step: int, phase: str, seconds: float) -> float:
        """How long timed work takes: as given, unless this rank's fault slows it."""
        return self.fault.act.compute_s(self.fault, step, phase, seconds)

    def gradients(self, step: int, gradients: Sequence[torch.Tensor]) -> None:
        """Show the reduced gradients to this rank's fault before the optimizer uses them."""
        if self.fault.active:
            self.fault.act.gradients(self.fault, step, gradients)

    def position(self, samples: int) -> int:
        """Where a resumed loader goes on: `samples`, unless this rank's fault loses its place."""
        return self.fault.act.position(self.fault, samples) if self.fault.active else samples

    def storage(self, step: int, folder: Path, writer: "FileSystemWriter") -> "FileSystemWriter":
        """What writes this rank's part of a checkpoint: the given writer, unless a fault replaces it."""
        return self.fault.act.storage(self.fault, step, folder, writer) if self.fault.active else writer

    def timed(self, field: str) -> Timer:
        """A context manager that adds the seconds of its block to a measurement of the current step."""
        return self._signals.timed(field)

    def measure(self, **fields: SignalValue) -> None:
        """Add measurements (the contract's signal names) to the record of the current step."""
        self._fields.update(fields)

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._dump()
            sys.stdout.flush()
            if isinstance(error, SystemExit) and error.code in (0, None):
                self._registration.finished()
            return
        self._registration.groups(_memberships())
        dist.destroy_process_group()
        # Only now: gloo's thread retires the last operation after its wait() has returned.
        self._dump()
        self._signals.close()
        self._registration.finished()
        if self._triggers:
            self._triggers.close()

    def _dump(self) -> None:
        if self._triggers:
            self._triggers.dump()


def _memberships() -> tuple[GroupRecord, ...]:
    """Every group that this rank belongs to, with global ranks in group order.

    Source: `torch.distributed.distributed_c10d._world`; the recorder's own pg_config is wrong on gloo.
    """
    world = dist.distributed_c10d._world
    return tuple(
        GroupRecord(name, str(group.group_desc), tuple(dist.get_process_group_ranks(group)))
        for group, name in world.pg_names.items()
        if dist.get_rank(group) >= 0
    )
