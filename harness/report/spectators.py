"""What is shown while runs go on: the phases of a single one, a line a run for several."""

import threading
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.status import Status
from rich.text import Text

from harness.catalog.selection import RunTitle
from harness.many import RunOutcome, Spectator
from harness.report.progress import PhaseLine
from harness.report.summary import result_line, widest


class OneRun:
    """The phases of a single run, on standard error. Use as a context manager."""

    def __init__(self, console: Console, title: RunTitle) -> None:
        self._line = PhaseLine(console, title.drill)

    def __enter__(self) -> "OneRun":
        self._line.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def started(self, title: RunTitle) -> None:
        """Nothing: the line is there already."""

    def phase(self, title: RunTitle, name: str, detail: str) -> None:
        """Show the phase."""
        self._line.phase(name, detail)

    def ended(self, number: int, outcome: RunOutcome) -> None:
        """Nothing: a single run's whole report is printed after it."""


class ManyRuns:
    """A line a run as it finishes; on a terminal also what runs now. Use as a context manager."""

    def __init__(self, results: Console, status: Console, titles: Sequence[RunTitle]) -> None:
        self._results = results
        self._console = status
        self._status: Status | None = status.status("starting") if status.is_terminal else None
        self._titles = titles
        self._widest = widest(titles)
        self._done = 0
        self._lock = threading.Lock()
        self._running: dict[RunTitle, str] = {}

    def __enter__(self) -> "ManyRuns":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def started(self, title: RunTitle) -> None:
        """Show it among what runs."""
        self._show(title, "starting")

    def phase(self, title: RunTitle, name: str, detail: str) -> None:
        """Show the phase of one of the runs."""
        self._show(title, name)

    def ended(self, number: int, outcome: RunOutcome) -> None:
        """Print its line; a run that was interrupted before it began gets none."""
        with self._lock:
            self._running.pop(outcome.title, None)
            self._done += 1
            if outcome.exit_code == 130 and outcome.bundle is None:
                return
            # Two consoles, one terminal: the status line must not stand where the result goes.
            if self._status is not None:
                self._status.stop()
            self._results.print(result_line(outcome, self._widest), soft_wrap=True)
            if self._status is not None:
                self._status.start()
        self._show(None, "")

    def _show(self, title: RunTitle | None, phase: str) -> None:
        with self._lock:
            if title is not None:
                self._running[title] = phase
            if self._status is not None:
                now = ", ".join(f"{title} ({phase})" for title, phase in self._running.items())
                text = Text(f"{self._done} of {len(self._titles)} done  {now}")
                # The spinner stands before it.
                text.truncate(self._console.width - 3, overflow="ellipsis")
                self._status.update(text)


class Both:
    """Two spectators as one."""

    def __init__(self, first: Spectator, second: Spectator) -> None:
        self._both = (first, second)

    def started(self, title: RunTitle) -> None:
        """Tell both."""
        for one in self._both:
            one.started(title)

    def phase(self, title: RunTitle, name: str, detail: str) -> None:
        """Tell both."""
        for one in self._both:
            one.phase(title, name, detail)

    def ended(self, number: int, outcome: RunOutcome) -> None:
        """Tell both."""
        for one in self._both:
            one.ended(number, outcome)
