"""What was seen of a job, turned into happenings that move its state."""

from collections import deque
from dataclasses import dataclass, field

from harness.diagnose.signals.thresholds import ALERTS, AlertThresholds
from harness.monitor.records import LauncherRecord
from harness.monitor.states import Happening, State, advance


@dataclass(frozen=True)
class Progress:
    """How far a job is, over all ranks that one exporter follows.

    `attempt`: the newest start that left a file. `stepped`: whether that start has finished a step.
    `step`, `at`: the newest step of the slowest rank, and when (unix seconds). `p50_s`: median
    step time.
    """

    attempt: int
    stepped: bool
    step: int
    at: float
    p50_s: float | None
    loss_finite: bool = True
    xid_at: float | None = None
    ranks: int = 0


@dataclass
class JobState:
    """The state of one job. Feed it what a launcher says, and look regularly."""

    thresholds: AlertThresholds = ALERTS
    state: State = State.RUNNING
    gone: bool = False
    _attempt: int | None = None
    _step: int = -1
    _at: float = 0.0
    _before: int = -1
    """The step that a restarted job must pass to be where it was."""
    _restarts: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    _restarting_since: float | None = None
    _down_since: float | None = None
    _finished: set[int] = field(default_factory=set)
    _ended: bool = False

    def launcher(self, said: LauncherRecord) -> None:
        """A launcher's event."""
        if said.what == "finished":
            self._finished |= {said.rank} if said.rank is not None else set()
            self._ended |= said.rank is None
        elif said.what in ("stopping", "stopped"):
            self._ended = True
        elif said.what == "exited" and said.rank not in self._finished and not self._ended:
            # Whether the launcher starts the ranks again shows later; until then nobody need be told twice.
            if self._down_since is None:
                self._down_since = said.t
                self._restart(said.t)
        elif said.what == "restarting":
            self._restart(said.t)
        elif said.what == "joined" and self._restarting_since is not None:
            self._joined()

    def look(self, now: float, progress: Progress | None) -> State:
        """The state at `now`, unix seconds; None before any rank has a record."""
        if progress is not None:
            self._see(now, progress)
        if self._ended or (progress and 0 < progress.ranks <= len(self._finished)):
            self._happen(Happening.ENDED)
        elif self._down_since is not None and now - self._down_since > self.thresholds.gone_s:
            self.gone = True
            self._happen(Happening.GONE)
        return self.state

    def overdue_s(self, p50_s: float | None) -> float:
        """How long without a step is a stall: 3 x the median step, and a floor (DIAGNOSIS, thresholds)."""
        return max(self.thresholds.hang_steps * (p50_s or 0.0), self.thresholds.hang_s)

    def _see(self, now: float, progress: Progress) -> None:
        if self._attempt is not None and progress.attempt > self._attempt:
            self._new_attempt(now)
        self._attempt = progress.attempt
        if progress.stepped and (progress.at, progress.step) != (self._at, self._step):
            self._stepped(progress)
        limit = self.thresholds
        self._happen(Happening.FINITE if progress.loss_finite else Happening.NOT_FINITE)
        fresh = progress.xid_at is not None and now - progress.xid_at < limit.xid_window_s
        self._happen(Happening.HARDWARE if fresh else Happening.QUIET)
        restarting = self._restarting_since
        if restarting is not None and now - restarting > limit.restart_limit_s:
            self._happen(Happening.RESTART_OVERDUE)
        if progress.stepped and now - progress.at > self.overdue_s(progress.p50_s):
            recent = bool(self._restarts) and now - self._restarts[-1] < limit.restart_window_s
            self._happen(Happening.STALLED_AGAIN if recent else Happening.OVERDUE)

    def _new_attempt(self, now: float) -> None:
        """A start left its first file: its ranks are there."""
        if self._restarting_since is None:
            self._restart(now)
        self._restarts.append(now)
        window = self.thresholds.restart_window_s
        if sum(now - at < window for at in self._restarts) >= self.thresholds.restarts:
            self._happen(Happening.EXHAUSTED)
        self._joined()

    def _joined(self) -> None:
        self._down_since = None
        self.gone = False
        if self.state is not State.STOPPED or not self._restarts_exhausted():
            self._happen(Happening.JOINED)

    def _restarts_exhausted(self) -> bool:
        recent = [at for at in self._restarts if self._restarts[-1] - at < self.thresholds.restart_window_s]
        return len(recent) >= self.thresholds.restarts

    def _restart(self, at: float) -> None:
        self._restarting_since = at
        self._before = max(self._before, self._step)
        self._finished.clear()
        self._happen(Happening.RESTART)

    def _stepped(self, progress: Progress) -> None:
        self._step, self._at = progress.step, progress.at
        self._down_since = None
        self.gone = False
        if self.state is State.STOPPED and self._restarts_exhausted():
            # A job that fails again and again must first get further than it was.
            if progress.step > self._before:
                self._happen(Happening.CAUGHT_UP)
        else:
            self._happen(Happening.STEPPED)
            if progress.step > self._before:
                self._happen(Happening.CAUGHT_UP)
        if progress.step > self._before:
            self._restarting_since = None

    def _happen(self, happening: Happening) -> None:
        self.state = advance(self.state, happening)
