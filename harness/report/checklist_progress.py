"""A checklist while it runs: one line an item as it ends, and on a terminal what runs now."""

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.status import Status

from harness.checklist.estimate import Expected
from harness.checklist.run import Listener
from harness.jobenv import JobEnvironment, relevant
from harness.model.checklist import Checklist, Item, ItemResult
from harness.report.checklist import show_item


class ShownRun(Listener):
    """Prints each item's line to `console`; what runs now to `err`, if that is a terminal."""

    def __init__(self, console: Console, err: Console) -> None:
        self._console = console
        self._status: Status | None = err.status("") if err.is_terminal else None
        self._now = ""

    def __enter__(self) -> "ShownRun":
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

    def step(self, item: Item, title: str) -> None:
        self._now = f"{item.id}: {title}"
        self._show()

    def phase(self, name: str, detail: str) -> None:
        """What a drill does meanwhile."""
        self._show(f" ({name} {detail})".rstrip())

    def ended(self, item: Item, result: ItemResult) -> None:
        show_item(self._console, item, result)

    def _show(self, more: str = "") -> None:
        if self._status is not None:
            self._status.update(f"{self._now}{more}")


def show_estimate(
    console: Console, checklist: Checklist, expected: Sequence[Expected], job: JobEnvironment
) -> None:
    """What would run, as what, and for how long; which variables the job brings; what was not understood."""
    for one in expected:
        took = f"{one.seconds:.0f} s" if one.seconds else ""
        console.print(f"{one.item.id:<16}{one.how:<17}{took:>6}  {one.title}", soft_wrap=True, markup=False)
    total = sum(one.seconds for one in expected)
    console.print(f"\n{checklist.name}: about {total / 60:.0f} min ({total:.0f} s); nothing was started")
    names = relevant(job.over({}))
    for name in sorted(names):
        at = job.variables[name]
        console.print(
            f"with {name}={at.value}  ({at.file}:{at.line})", style="dim", soft_wrap=True, markup=False
        )
    for skipped in (*job.not_understood, *job.assumed):
        console.print(f"note: {skipped}", style="yellow", soft_wrap=True, markup=False)
