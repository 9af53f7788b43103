"""A live line a phase while a drill runs; plain lines where there is no terminal."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.status import Status


class PhaseLine:
    """Shows what a run is doing. rich's display starts a thread: nothing is forked from this process."""

    def __init__(self, console: "Console", title: str) -> None:
        self._console = console
        self._title = title
        self._started = time.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> "PhaseLine":
        if self._console.is_terminal:
            self._status = self._console.status(f"{self._title}  starting")
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

    def phase(self, name: str, detail: str) -> None:
        """Enter a phase, or update its detail."""
        since = time.monotonic() - self._started
        if self._status is not None:
            self._status.update(f"{self._title}  {name}  {detail}  {since:.1f} s")
        elif name != "steps":
            text = f"{since:5.1f} s  {self._title}  {name}  {detail}".rstrip()
            self._console.print(text, style="dim", soft_wrap=True)


SHOW_AFTER_S = 2.0
"""Shorter waits need no bar."""


class LoadBar:
    """A progress bar for loading dumps, shown on a terminal once it takes longer than two seconds."""

    def __init__(self, console: "Callable[[], Console]") -> None:
        self._make_console = console
        self._started = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._unseen = False

    def __enter__(self) -> "LoadBar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """So many of so many dumps are loaded."""
        if self._bar is None and not self._unseen and time.monotonic() - self._started > SHOW_AFTER_S:
            console = self._make_console()
            self._unseen = not console.is_terminal
            if not self._unseen:
                self._begin(console, total)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)

    def _begin(self, console: "Console", total: int) -> None:
        from rich.progress import Progress

        self._bar = Progress(console=console, transient=True)
        self._task = self._bar.add_task("loading", total=total)
        self._bar.start()
