"""Per-step records: one JSON object a line, one file a rank, appended at the end of every step."""

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from harness.worker.memory import MemoryReader
from harness.worker.signal_file import SignalFile
from harness.worker.signal_thread import ThreadClock
from harness.worker.signal_timing import TimedData, Timer
from harness.worker.signal_values import line, plain

SignalValue = int | float | str | bool | None
T = TypeVar("T")

FOLDER = "DRILL_SIGNALS"
"""Where `Signals.open` writes if it is not told. Where it is absent too, nothing is written."""

_OURS = frozenset(("t", "step", "rank"))
_CHECKED = _OURS | {"step_time_s"}


class Signals:
    """Append-only writer of one rank's step records.

        signals = Signals.open("/shared/run42/signals")
        for step, batch in enumerate(signals.data(loader)):
            loss = train(batch)
            signals.step(step, loss=loss)

    Never raises into training, never waits for a disk or a device, never communicates. On a local disk
    each line goes to the kernel in one write, so a killed rank loses at most the step that it was in; on
    network filesystems, or once a write was slow, a thread writes. A forked child writes nothing. Not for
    use by several threads at once.
    """

    def __init__(self, path: Path | None, rank: int, attempt: int = 0, memory: bool = True) -> None:
        self.lost_fields = 0
        """Measurements that have no JSON form: tensors on a device, objects, overlong texts."""
        self._lost = 0
        self._rank = rank
        self._attempt = attempt
        self._seconds: dict[str, float] = {}
        self._next = 0
        self._told = False
        self._file: SignalFile | None = None
        self._memory: MemoryReader | None = None
        self._thread = ThreadClock()
        self._last = time.perf_counter_ns()
        if path is None:
            return
        with suppress(Exception):  # a machine that cannot tell its memory is no reason not to train
            self._memory = MemoryReader() if memory else None
        try:
            self._file = SignalFile(path)
        except Exception as error:  # whatever it is that is no path
            self._tell(str(error))
        self.start()

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str] | None = None,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        memory: bool = True,
    ) -> "Signals":
        """The writer of FOLDER/attempt_<n>/rank_<r>.jsonl; inert without a folder and without DRILL_SIGNALS.

        `rank` and `attempt` are torchrun's (RANK, TORCHELASTIC_RESTART_COUNT) unless given, 0 without it.
        `memory`: whether to record memory and output of this process in each step.
        """
        rank = _number("RANK") if rank is None else rank
        attempt = _number("TORCHELASTIC_RESTART_COUNT") if attempt is None else attempt
        try:
            folder = folder or os.environ.get(FOLDER)
            path = Path(os.fsdecode(folder)) / f"attempt_{attempt}" / f"rank_{rank}.jsonl" if folder else None
        except Exception as error:  # whatever it is that is no path
            signals = cls(None, rank, attempt)
            signals._tell(str(error))
            return signals
        return cls(path, rank, attempt, memory)

    @property
    def lost(self) -> int:
        """Records that are not in the file: the disk refused them, or the thread could not keep up."""
        return self._lost + (self._file.lost if self._file else 0)

    def start(self) -> None:
        """Restart the clocks of the step that now begins."""
        self._thread.restart()
        self._last = time.perf_counter_ns()

    def data(self, loader: Iterable[T]) -> TimedData[T]:
        """The loader, with the waits for its batches added to `data_wait_s`.

        Starts the clocks of the first step.
        """
        if self._next == 0:
            self.start()
        return TimedData(loader, "data_wait_s", self._add)

    def timed(self, name: str) -> Timer:
        """A context manager that adds the seconds of its block to a field of the current step.

        Several in one step add up. An exception in the block passes through untouched.
        """
        return Timer(name, self._add)

    def step(self, step: object = None, /, **fields: object) -> None:
        """Record one finished step. `fields` are the contract's signal names; step_time_s is measured.

        Without a number it is the step after the last one. Tensors of one element on the CPU are recorded
        as numbers. What lies on a device is not: reading it would synchronise; it is absent and counted in
        `lost_fields`, like everything that is no number, text or truth value. None is absent, not counted.
        """
        now = time.perf_counter_ns()
        if self._file is not None:
            try:
                self._record(self._file, (now - self._last) / 1e9, step, fields)
            except Exception as error:  # whatever it is, it is ours and not the training's
                self._lost += 1
                self._tell(str(error))
        self._last = now

    def close(self) -> None:
        """Close the file; where a thread writes, wait at most a second for it. Later steps are lost."""
        with suppress(Exception):
            if self._file is not None:
                self._file.close()
            if self._memory is not None:
                self._memory.close()

    def __enter__(self) -> "Signals":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["Signals"], tuple[None, int]]:
        """A copy, also one sent to a loader's worker process, is inert: the file has one writer."""
        return Signals, (None, self._rank)

    def _record(
        self,
        file: SignalFile,
        took_s: float,
        step: object,
        fields: dict[str, object],
    ) -> None:
        # After a step of training the caches are cold, and what costs is every function that is entered:
        # what is needed each time stands here in one piece.
        seconds = self._seconds
        if seconds:
            self._seconds = {}
        if not _CHECKED.isdisjoint(fields):
            step = self._without_ours(step, fields)
        number = step if type(step) is int else self._next if step is None else _step_number(step)
        self._next = number + 1
        t = time.time()
        record: dict[str, object] = {
            "t": t,
            "step": number,
            "rank": self._rank,
            "step_time_s": took_s,
        }
        if self._attempt:
            record["restart_total"] = self._attempt
        thread = self._thread
        thread.add(record)
        memory = self._memory
        if memory is not None and not memory.pace.begin <= t < memory.pace.end:
            try:
                memory.add(record, t)
            except Exception as error:  # a device in trouble must not cost the record that shows it
                self._tell(f"memory: {error}")
        if seconds:
            record.update(seconds)
        if fields:
            record.update(fields)
        data, lost = line(record)
        if lost:
            self.lost_fields += lost
        if data is None:
            self._lost += 1
            self._tell("a record was too long")
            return
        file.write(data, thread.preemptions)
        if file.problem:
            self._tell(file.problem)

    def _without_ours(self, step: object, fields: dict[str, object]) -> object:
        """Take names that are the writer's own out of `fields`; a step that was given so is the step."""
        for name in _OURS & fields.keys():
            given = fields.pop(name)
            if name == "step" and step is None:
                step = given
            else:
                self.lost_fields += 1
        if "step_time_s" in fields and plain(fields["step_time_s"]) is None:
            # What has no JSON form must not erase what was measured.
            self.lost_fields += fields.pop("step_time_s") is not None
        return step

    def _add(self, name: str, seconds: float) -> None:
        if isinstance(name, str) and name not in _OURS:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        else:
            self.lost_fields += 1

    def _tell(self, problem: str) -> None:
        """One line for the log, once: a disk that stays full must not flood it."""
        if not self._told:
            self._told = True
            with suppress(Exception):
                print(
                    f"signals of rank {self._rank}: not all are on record: {problem}",
                    file=sys.stderr,
                    flush=True,
                )


def _step_number(step: object) -> int:
    value = step if type(step) is int else plain(step)
    if not isinstance(value, int | float) or value != int(value):
        raise ValueError("a step is not a whole number")
    return int(value)


def _number(name: str) -> int:
    """An environment variable of torchrun; 0 where it is absent or no number."""
    try:
        return int(os.environ.get(name, "0"))
    except ValueError:
        return 0
