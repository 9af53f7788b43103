"""Looking at a job's main threads again and again until it is seen moving, or known to stand."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from harness.bundle.writer import BundleWriter
from harness.diagnose.movement import MOVING, STANDING, Movement, communicating, movement
from harness.diagnose.stacks.samples import RankStacks, read_sampling
from harness.model.ranks import format_ranks
from harness.observe.collect import Collector
from harness.observe.jobs import Job
from harness.observe.sleeping import asleep_s
from harness.observe.tail import StepTail

LOOKS_S = (0.0, 0.8, 1.8, 3.2)
"""When stacks are sampled, from the first sampling on; no longer than it takes to see that the job moves."""


@dataclass
class Look:
    """What the stacks of one job say of whether it moves. Each of the `samplings` goes into the bundle."""

    job: Job
    writer: BundleWriter
    steps: StepTail
    first: Mapping[int, RankStacks] = field(default_factory=dict)
    samplings: int = 0
    _movement: Movement = field(default_factory=Movement)
    _stepped: bool = False
    _start: float = 0.0

    @property
    def moving(self) -> bool:
        """Whether the job was seen moving."""
        return self._stepped or self._movement.moving

    def watch(self, after_first: Callable[[], None], progress: Callable[[str, str], None]) -> None:
        """Sample, call `after_first`, and sample on until the job moves or the looks are over."""
        self.steps.new_durations_s()
        self._start = time.monotonic()
        before: dict[int, tuple[float, int]] = {}
        for look, due in enumerate(LOOKS_S):
            time.sleep(max(0.0, self._start + due - time.monotonic()))
            progress("stacks", f"sampling {look + 1} of {len(self.job.ranks)} ranks")
            stacks, switches = self._sample(), self._switches()
            if look == 0:
                self.first, before = stacks, switches
                after_first()
                continue
            self._movement |= movement(self.first, stacks, _rates(before, switches))
            self._stepped = bool(self.steps.new_durations_s())
            if self.moving:
                break
        self._say()

    def again(self) -> None:
        """One more sampling, some time after the others."""
        self._movement |= movement(self.first, self._sample())
        self._stepped = self._stepped or bool(self.steps.new_durations_s())
        self._say()

    def _say(self) -> None:
        """Write the notice: moving, standing for so long, or unknown."""
        seen_s = time.monotonic() - self._start
        moved = self._movement
        if self._stepped:
            text = f"{MOVING}: steps were completed within {seen_s:.1f} s"
        elif moved.moving:
            ranks = format_ranks(moved.moved)
            text = f"{MOVING}: the main threads of ranks {ranks} moved within {seen_s:.1f} s"
        elif moved.compared:
            ranks = format_ranks(moved.compared - moved.moved)
            text = (
                f"{STANDING} for {max(seen_s, self._asleep_s()):.1f} s: the main threads of ranks {ranks} "
                f"did not move within {seen_s:.1f} s"
            )
        else:
            text = "collect: unknown: no main thread could be read twice"
        self.writer.notice(text)

    def _asleep_s(self) -> float:
        """How long everybody who waits in a collective has slept there; 0 where that is not known."""
        waiting = communicating(self.first) - self._movement.moved
        slept = [asleep_s(self.job.ranks[rank].pid) or 0.0 for rank in waiting]
        return min(slept, default=0.0)

    def _sample(self) -> Mapping[int, RankStacks]:
        sampling, attempt = self.samplings, self.job.attempt
        self.samplings += 1
        Collector(self.writer, attempt).stacks(self.job.pids, sampling)
        root = self.writer.layout.root
        return read_sampling(self.writer.layout.stacks / f"attempt_{attempt}" / str(sampling), root)[0]

    def _switches(self) -> dict[int, tuple[float, int]]:
        """How often each main thread has gone to sleep so far, and when that was read."""
        found: dict[int, tuple[float, int]] = {}
        for rank, pid in self.job.pids.items():
            with suppress(psutil.Error):
                found[rank] = (time.monotonic(), psutil.Process(pid).num_ctx_switches().voluntary)
        return found


def _rates(
    before: Mapping[int, tuple[float, int]], after: Mapping[int, tuple[float, int]]
) -> dict[int, float]:
    return {
        rank: (after[rank][1] - count) / max(0.1, after[rank][0] - at)
        for rank, (at, count) in before.items()
        if rank in after
    }
