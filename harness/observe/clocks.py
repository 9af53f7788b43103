"""Three clocks: joining, stepping, exiting. Pure: they are fed times (monotonic seconds) and asked."""

import statistics
from dataclasses import dataclass, field

STALL_FACTOR = 3.0
"""No step for this many median steps is a stall, if also longer than the floor (DIAGNOSIS, thresholds)."""

STALL_FLOOR_S = 2.0
MEDIAN_STEPS = 3


NCCL_START_S = 30.0
"""The first collective makes the communicator: loads kernels, looks at the topology, connects. Not measured
yet for eight ranks that take turns on one card: generous, since it only delays the notice of a first step's
hang."""


def first_step_floor_s(nproc: int, backend: str = "gloo") -> float:
    """How long ranks may take to their first steps before a median exists.

    On two cores the first step took 1.0 s at 16 ranks and 4.2 s at 24, since every pair connects.
    """
    return 4.0 + nproc / 4 + (NCCL_START_S if backend == "nccl" else 0.0)


def join_limit_s(nproc: int, exec_start: bool) -> float:
    """How long ranks may take to join: forked ones need half a second, exec'd ones import torch first."""
    return (60.0 + 4.0 * nproc) if exec_start else (15.0 + 0.5 * nproc)


@dataclass
class StepClock:
    """Whether any rank has completed a step lately.

    Starts when the last rank has joined: a clock that ran earlier would call slow starts a stall.
    """

    first_floor_s: float
    floor_s: float = STALL_FLOOR_S
    _since: float | None = None
    _durations: list[float] = field(default_factory=list)

    def joined(self, now: float) -> None:
        """Every rank has joined; steps are due from now on."""
        if self._since is None:
            self._since = now

    def stepped(self, now: float, durations_s: list[float]) -> None:
        """One or more ranks completed steps that took `durations_s`."""
        self._since = now
        self._durations.extend(durations_s)

    @property
    def limit_s(self) -> float:
        """How long without a step is a stall, by what is known now."""
        if len(self._durations) < MEDIAN_STEPS:
            return self.first_floor_s
        return max(STALL_FACTOR * statistics.median(self._durations), self.floor_s)

    def stalled_s(self, now: float) -> float | None:
        """Seconds without a step if that is a stall, else None."""
        if self._since is None or now - self._since < self.limit_s:
            return None
        return now - self._since


@dataclass
class JoinClock:
    """Who has not joined after the limit."""

    expected: int
    limit_s: float
    started: float
    _joined: set[int] = field(default_factory=set)

    def joined(self, rank: int) -> None:
        """`rank` is in the default group."""
        self._joined.add(rank)

    @property
    def complete(self) -> bool:
        """Whether everybody has joined."""
        return len(self._joined) >= self.expected

    def overdue(self, now: float) -> tuple[int, ...]:
        """Ranks that should have joined by now and have not."""
        if self.complete or now - self.started < self.limit_s:
            return ()
        return tuple(sorted(set(range(self.expected)) - self._joined))


@dataclass
class ExitClock:
    """Ranks that ended, and ranks that are still there after others finished."""

    expected: int
    linger_limit_s: float
    _done_since: float | None = None
    _done: set[int] = field(default_factory=set)

    def finished(self, rank: int, now: float) -> None:
        """`rank` came to its end, or left with exit code 0."""
        if rank not in self._done:
            self._done.add(rank)
            if self._done_since is None:
                self._done_since = now

    @property
    def complete(self) -> bool:
        """Whether everybody is done."""
        return len(self._done) >= self.expected

    def lingering(self, now: float) -> tuple[int, ...]:
        """Ranks still there long after the first one finished."""
        if self._done_since is None or self.complete or now - self._done_since < self.linger_limit_s:
            return ()
        return tuple(sorted(set(range(self.expected)) - self._done))
