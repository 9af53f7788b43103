"""Watching a run until something is worth looking at."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.bundle.reader import BundleReader
from harness.bundle.writer import BundleWriter
from harness.model.ranks import format_ranks
from harness.observe.clocks import ExitClock, JoinClock, StepClock, first_step_floor_s
from harness.observe.processes import ExitWatch
from harness.observe.tail import StepTail

POLL_S = 0.02
SECOND_LOOK_S = 0.4
LINGER_LIMIT_S = 5.0


@dataclass(frozen=True)
class Notice:
    """Why the watch ended. `kind`: finished, stall, exit, join, linger, timeout. `at` is unix seconds."""

    kind: str
    at: float
    detail: str

    @property
    def trouble(self) -> bool:
        """Whether this is worth collecting evidence for."""
        return self.kind != "finished"


@dataclass
class Watch:
    """Three clocks over one attempt of one run. `poll` it until it returns a notice."""

    writer: BundleWriter
    nproc: int
    join_limit_s: float
    timeout_s: float
    on_phase: Callable[[str], None] = lambda _: None
    attempt: int = 0
    first_step_s: float | None = None
    pids: dict[int, int] = field(default_factory=dict)
    joined_at: float | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        now = time.monotonic()
        self._started = now
        self._reader = BundleReader(self.writer.layout)
        self._join = JoinClock(self.nproc, self.join_limit_s, now)
        self._step = StepClock(self.first_step_s or first_step_floor_s(self.nproc))
        self._exit = ExitClock(self.nproc, LINGER_LIMIT_S)
        self._exits = ExitWatch()
        self._tail = StepTail(self.writer.layout.signals / f"attempt_{self.attempt}")
        self._seen_ended: set[int] = set()
        self._finished: set[int] = set()

    def poll(self) -> Notice | None:
        """Look once at everything."""
        now = time.monotonic()
        self._look_at_registrations(now)
        notice = self._look_at_exits(now)
        durations = self._tail.new_durations_s()
        if durations:
            self.steps += len(durations)
            self._step.stepped(now, durations)
        return notice or self._ask_the_clocks(now)

    def moved_since(self, steps: int) -> bool:
        """Whether steps are completed after `steps` had been counted: then nobody stood still.

        Looks for `SECOND_LOOK_S`: two samples without movement make a stall (DIAGNOSIS, Flight Recorder).
        """
        deadline = time.monotonic() + SECOND_LOOK_S
        while time.monotonic() < deadline:
            self.poll()
            if self.steps > steps:
                return True
            time.sleep(POLL_S)
        return False

    def calm_down(self) -> None:
        """After a false alarm: wait twice as long for the next step."""
        self._step.floor_s *= 2
        self._step.first_floor_s *= 2

    def close(self) -> None:
        """Let go of the watched processes."""
        self._exits.close()

    def _look_at_registrations(self, now: float) -> None:
        if len(self._finished) == self.nproc:
            return
        for record in self._reader.registrations():
            if record.attempt != self.attempt:
                continue
            self.pids[record.rank] = record.pid
            self._exits.add(record.pid)
            if record.joined is not None:
                self._join.joined(record.rank)
            if record.finished is not None and record.rank not in self._finished:
                self._finished.add(record.rank)
                self._exit.finished(record.rank, now)
                self.writer.event("finished", record.rank)
        if self._join.complete and self.joined_at is None:
            self.joined_at = time.time()
            self._step.joined(now)
            self.writer.event("joined", detail=f"ranks {format_ranks(self.pids)}")
            self.writer.phase("joined")
            self.on_phase("joined")

    def _look_at_exits(self, now: float) -> Notice | None:
        ended = self._exits.ended()
        unexpected: list[int] = []
        for rank, pid in self.pids.items():
            if pid not in ended or rank in self._seen_ended:
                continue
            self._seen_ended.add(rank)
            self.writer.event("exited", rank)
            if rank not in self._finished:
                unexpected.append(rank)
            self._exit.finished(rank, now)
        if unexpected:
            # A rank may have said that it finished after we read the registrations and before it left.
            self._look_at_registrations(now)
            unexpected = [rank for rank in unexpected if rank not in self._finished]
        if unexpected:
            who = (
                f"rank {unexpected[0]} is"
                if len(unexpected) == 1
                else f"ranks {format_ranks(unexpected)} are"
            )
            return Notice("exit", time.time(), f"{who} gone")
        return None

    def _ask_the_clocks(self, now: float) -> Notice | None:
        if self._exit.complete:
            return Notice("finished", time.time(), f"all {self.nproc} ranks finished")
        if overdue := self._join.overdue(now):
            detail = f"rank {format_ranks(overdue)} has not joined after {self.join_limit_s:g} s"
            return Notice("join", time.time(), detail)
        if lingering := self._exit.lingering(now):
            detail = f"rank {format_ranks(lingering)} is still there after others finished"
            return Notice("linger", time.time(), detail)
        if not self._finished and (stalled := self._step.stalled_s(now)) is not None:
            limit = self._step.limit_s
            detail = f"no step on any rank for {stalled:.1f} s (limit {limit:.1f} s)"
            return Notice("stall", time.time(), detail)
        if now - self._started > self.timeout_s:
            return Notice("timeout", time.time(), f"still running after {self.timeout_s:g} s")
        return None
