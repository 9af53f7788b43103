"""Sampling the main threads of a job that runs, again and again and gently: where do ranks spend time?"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from harness.bundle.layout import Layout
from harness.bundle.writer import BundleWriter
from harness.model.ranks import format_ranks
from harness.observe.processes import state_of
from harness.observe.stack_files import voluntary_switches, write_stack
from harness.observe.stacks import ProcessSample, dump_threads

SAMPLES = 10
OVER_S = 5.0

CORES_PER_SAMPLER = 8
"""One py-spy at a time for so many cores. It needs 16 ms of CPU a rank; ranks need the rest."""

_GOLDEN = 0.6180339887
"""Looks at the same distance from each other may all fall into the same phase of a step: these never do."""


@dataclass
class RepeatedSampling:
    """`samples` samplings of the main threads of `pids` (rank -> pid), spread over `over_s` seconds.

    They go into the bundle as samplings `first`, `first` + 1, ... Each begins with another rank, so that none
    is always looked at first. It never samples for more than half of the time: where a sampling takes longer
    than a pause, all together last longer. Either `run` it, or `start` it in a thread of its own, poll
    `done`, and `stop` it; then `report` once. Never raises on what it cannot have.
    """

    layout: Layout
    attempt: int
    pids: Mapping[int, int]
    samples: int = SAMPLES
    over_s: float = OVER_S
    first: int = 2
    taken: int = 0
    _read: set[int] = field(default_factory=set)
    _errors: dict[int, str] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _began: float = 0.0
    _took_s: float = 0.0

    @property
    def done(self) -> bool:
        """Whether it was started and has ended."""
        return self._thread is not None and not self._thread.is_alive()

    def start(self) -> None:
        """Begin in a thread that touches nothing but the bundle's stacks."""
        self._thread = threading.Thread(target=self.run, name="stacks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End early, with the rank that is being sampled: some 20 ms, SAMPLE_TIMEOUT_S at worst."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def run(self, after_each: Callable[[int], None] = lambda taken: None) -> None:
        """Take all samplings, then return; `after_each` is told how many there are."""
        self._began, free_at = time.monotonic(), 0.0
        workers = max(1, (os.cpu_count() or 1) // CORES_PER_SAMPLER)
        with ThreadPoolExecutor(workers, "py-spy") as pool:
            for number in range(self.samples):
                due = (number + number * _GOLDEN % 1) * self.over_s / self.samples
                begin = max(self._began + due, free_at)
                if self._stop.wait(max(0.0, begin - time.monotonic())):
                    break
                begin = time.monotonic()
                self._take(number, pool)
                end = time.monotonic()
                self._took_s, free_at = end - self._began, end + (end - begin)
                after_each(self.taken)

    def report(self, writer: BundleWriter) -> None:
        """Write into the manifest what was taken, and why ranks that were never read were not."""
        if self.taken:
            writer.collected(f"stacks, {self.taken} samplings over {self._took_s:.1f} s")
        reasons: dict[str, list[int]] = {}
        for rank, error in self._errors.items():
            if rank not in self._read:
                reasons.setdefault(error, []).append(rank)
        for reason, ranks in reasons.items():
            writer.not_collected(f"repeated stacks of rank {format_ranks(ranks)}", reason)

    def _take(self, number: int, pool: ThreadPoolExecutor) -> None:
        ranks = sorted(self.pids)
        ahead = number % max(1, len(ranks))
        order = (*ranks[ahead:], *ranks[:ahead])
        list(pool.map(lambda rank: self._sample(rank, self.first + number), order))
        self.taken += not self._stop.is_set()

    def _sample(self, rank: int, sampling: int) -> None:
        if self._stop.is_set():
            return
        sample, switches = _main_thread(self.pids[rank])
        if sample.error:
            self._errors[rank] = sample.error
        else:
            self._read.add(rank)
        try:
            write_stack(self.layout.stack(self.attempt, sampling, rank), (sample,), switches)
        except OSError as error:
            self._errors[rank] = error.strerror or str(error)


def _main_thread(pid: int) -> tuple[ProcessSample, dict[int, int]]:
    """One process without its children, and how often its main thread has slept."""
    state, switches = state_of(pid), voluntary_switches((pid,))
    threads, error = dump_threads(pid)
    return ProcessSample(pid, "rank", state, threads, error), switches
