"""Many runs, several at once. A run that cannot run, or that meets a bug of ours, stops no other."""

import errno
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from harness.catalog.selection import PlannedRun, RunTitle
from harness.experiment import DIAGNOSING, Experiment, Progress, RunResult
from harness.interrupts import signals_call
from harness.launch.client import LauncherClient, LauncherDied
from harness.model.errors import DrillError, Interrupted
from harness.model.plan import RunPlan
from harness.model.verdict import Outcome
from harness.sharing import without_sharing

STOP_LIMIT_S = 15.0
"""How long interrupted runs may take to stop their ranks; then the launchers' end stops them."""

WAKE_S = 0.2

INTERNAL = 5
CANNOT_WRITE = 4
_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 3}
_WORST = (INTERNAL, 1, 3, 4, 0)


@dataclass(frozen=True)
class RunError:
    """Why a run has no verdict. `trace` is there only for a bug of ours."""

    exit_code: int
    message: str
    trace: str | None = None


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended: with a result or with an error. `bundle` is None if it never made one."""

    title: RunTitle
    run: RunResult | None
    error: RunError | None
    bundle: Path | None
    seconds: float

    @property
    def exit_code(self) -> int:
        """What this run alone would exit with."""
        if self.error is not None:
            return self.error.exit_code
        assert self.run is not None
        return _CODES[self.run.verdict.verdict]

    @property
    def passed(self) -> bool:
        """Whether the verdict is a pass; nothing else is one."""
        return self.exit_code == 0


class Spectator(Protocol):
    """Who is told how runs go on; `started` and `ended` in the main thread, the rest in any."""

    def started(self, title: RunTitle) -> None:
        """A run starts."""

    def phase(self, title: RunTitle, name: str, detail: str) -> None:
        """A run enters a phase."""

    def ended(self, number: int, outcome: RunOutcome) -> None:
        """Run `number` of the plan, from 0, has ended."""


def worst(codes: Iterable[int]) -> int:
    """The exit code of several runs: 5, 1, 3, 4, 0, in this order."""
    seen = set(codes)
    return next(code for code in _WORST if code in seen)


def run_many(planned: Sequence[PlannedRun], jobs: int, spectator: Spectator) -> tuple[list[RunOutcome], bool]:
    """Run everything, `jobs` at a time. Returns the outcomes in the order of the plan, and whether a
    signal ended it early: then what ran was stopped and what did not run is an outcome with exit code 130.

    Call it from the main thread: launchers die with the thread that starts them, and signals come there.
    """
    return _Crew(planned, jobs, spectator).run()


class _Crew:
    """Launchers, and a thread a run. Only the main thread starts launchers and touches outcomes."""

    def __init__(self, planned: Sequence[PlannedRun], jobs: int, spectator: Spectator) -> None:
        self._waiting = deque(enumerate(planned))
        self._spectator = spectator
        self._outcomes: dict[int, RunOutcome] = {}
        self._stop = threading.Event()
        self._interrupted = False
        # None stands for a signal. Putting into a SimpleQueue is safe in a signal handler.
        self._ended: SimpleQueue[tuple[int, RunOutcome, LauncherClient, bool] | None] = SimpleQueue()
        self._idle = [LauncherClient() for _ in range(min(jobs, len(planned)))]
        self._busy: dict[LauncherClient, tuple[int, RunTitle]] = {}

    def run(self) -> tuple[list[RunOutcome], bool]:
        with signals_call(self._interrupt):
            try:
                self._work()
            finally:
                self._end()
        for number, title in self._busy.values():
            late = Interrupted("interrupted; its ranks were killed with their launcher")
            self._note(number, _failed(title, 0.0, None, late))
        for number, item in self._waiting:
            self._note(number, _failed(item.title, 0.0, None, Interrupted("interrupted before it ran")))
        return [self._outcomes[number] for number in sorted(self._outcomes)], self._interrupted

    def _interrupt(self) -> None:
        self._interrupted = True
        self._stop.set()
        self._ended.put(None)

    def _work(self) -> None:
        while not self._stop.is_set() and (self._busy or self._waiting):
            while self._waiting and self._idle and not self._stop.is_set():
                self._start(*self._waiting.popleft())
            # Never blocks for long: a signal that comes just before a blocking call is seen only after it.
            with suppress(Empty):
                if self._busy and (ended := self._ended.get(timeout=WAKE_S)) is not None:
                    self._finish(*ended)

    def _end(self) -> None:
        """Whatever ends us early: the threads stop their ranks before their launchers go."""
        self._stop.set()
        try:
            self._wait_for_threads()
        finally:
            for client in (*self._idle, *self._busy):
                client.close()

    def _wait_for_threads(self) -> None:
        deadline = time.monotonic() + STOP_LIMIT_S
        with suppress(Empty):
            while self._busy:
                ended = self._ended.get(timeout=max(0.0, deadline - time.monotonic()))
                if ended is not None:
                    self._finish(*ended)

    def _start(self, number: int, item: PlannedRun) -> None:
        if not isinstance(item.plan, RunPlan):
            self._note(number, _failed(item.title, 0.0, None, item.plan))
            return
        client = self._idle.pop()
        with DIAGNOSING:
            client.start()
        self._busy[client] = number, item.title
        self._spectator.started(item.title)
        thread = threading.Thread(
            target=self._run_one, args=(number, item.title, item.plan, client), daemon=True
        )
        thread.start()

    def _finish(self, number: int, outcome: RunOutcome, client: LauncherClient, died: bool) -> None:
        del self._busy[client]
        if died:
            client.close()
        self._idle.append(LauncherClient() if died else client)
        self._note(number, outcome)

    def _note(self, number: int, outcome: RunOutcome) -> None:
        self._outcomes[number] = outcome
        self._spectator.ended(number, outcome)

    def _run_one(self, number: int, title: RunTitle, plan: RunPlan, client: LauncherClient) -> None:
        started = time.monotonic()
        progress: Progress = lambda name, detail: self._spectator.phase(title, name, detail)  # noqa: E731
        experiment = Experiment(plan, client, progress, self._stop)
        died = False
        try:
            run = experiment.run()
            if (fewer := without_sharing(run)) is not None:
                experiment = Experiment(fewer, client, progress, self._stop)
                run = experiment.run()
            outcome = RunOutcome(title, run, None, run.bundle, time.monotonic() - started)
        except Exception as error:
            died = isinstance(error, LauncherDied)
            outcome = _failed(title, time.monotonic() - started, experiment, error)
        self._ended.put((number, outcome, client, died))


def _failed(title: RunTitle, seconds: float, experiment: Experiment | None, error: Exception) -> RunOutcome:
    bundle = None
    # Before it has made one, an experiment has no bundle.
    with suppress(AttributeError):
        bundle = experiment.bundle if experiment else None
    return RunOutcome(title, None, _explained(error), bundle, seconds)


def _explained(error: Exception) -> RunError:
    if isinstance(error, DrillError):
        return RunError(error.exit_code, str(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
        return RunError(CANNOT_WRITE, f"cannot write: {error.strerror}")
    trace = "".join(traceback.format_exception(error))
    return RunError(INTERNAL, f"internal error: {type(error).__name__}: {error}", trace)
