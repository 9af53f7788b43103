"""What plays beside the ranks of a drill: nothing, or the page drill."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from harness.bundle.writer import BundleWriter
from harness.model.errors import PrerequisiteError
from harness.model.page import PageReport
from harness.model.plan import RunPlan
from harness.observe.watch import Notice, Watch

Progress = Callable[[str, str], None]


class Companion(Protocol):
    """Told of everything that an experiment sees of its ranks; it may want the job left alone for a while."""

    def start(self, writer: BundleWriter, progress: Progress) -> None:
        """Before the ranks are launched."""

    def look(self, watch: Watch) -> None:
        """While they run, many times a second."""

    def holds(self, notice: Notice) -> bool:
        """Whether a notice is the companion's own doing, and no reason to collect and stop."""

    def stop(self) -> None:
        """Before the ranks are stopped, whatever happened; `start` may not have been called."""

    def report(self) -> PageReport | None:
        """What came of it."""


class NoCompanion:
    """Most drills have none."""

    def start(self, writer: BundleWriter, progress: Progress) -> None:
        """Nothing starts."""

    def look(self, watch: Watch) -> None:
        """Nothing looks."""

    def holds(self, notice: Notice) -> bool:
        """Every notice counts."""
        return False

    def stop(self) -> None:
        """Nothing runs."""

    def report(self) -> PageReport | None:
        """Nothing came of it."""
        return None


def companion_of(plan: RunPlan) -> Companion:
    """The companion of a plan; nothing is started yet.

    Raises:
        PrerequisiteError: the monitoring programs are missing, or nobody answers at the user's Alertmanager.
    """
    return PageCompanion(plan) if plan.mode.page else NoCompanion()


class PageCompanion:
    """The page drill with the settings of a plan."""

    def __init__(self, plan: RunPlan) -> None:
        # Imported where it is needed: other drills start without the monitoring.
        from harness.diagnose.signals.thresholds import ALERTS
        from harness.monitor.binaries import find_binaries
        from harness.monitor.page_drill import PageDrill

        assert plan.mode.page is not None
        self._plan = plan
        self._scene = plan.mode.page
        folder = str(plan.parameters.get("bin_dir", ""))
        self._binaries = find_binaries(Path(folder) if folder else None)
        self._alertmanager = str(plan.parameters.get("alertmanager", "")).rstrip("/")
        if self._scene == "own":
            _check(self._alertmanager)
        # Only the stall rule and the silence of an exporter wait for a threshold; the limit is one for all.
        self._threshold_s = float(plan.parameters.get("threshold", ALERTS.hang_s))
        self._within_s = self._threshold_s + ALERTS.pages_within_s
        bears_s = float(plan.parameters.get("collective_timeout_s", 0))
        if bears_s <= 2 * self._within_s:
            raise PrerequisiteError(
                f"--set collective_timeout_s={bears_s:g}: the ranks would abort before a late page came;"
                f" more than {2 * self._within_s:g} is needed with this threshold"
            )
        self._drill: PageDrill | None = None

    def start(self, writer: BundleWriter, progress: Progress) -> None:
        """Bring the monitoring up beside the bundle."""
        from harness.monitor.page_drill import JOB, PageDrill
        from harness.monitor.scene import SCENES
        from harness.monitor.stack import Stack

        own = self._scene == "own"
        code = secrets.token_hex(3) if own else None
        stack = Stack(
            self._binaries,
            writer.layout.root,
            writer.layout.root / "page",
            JOB,
            self._threshold_s,
            others=(self._alertmanager,) if own else (),
            mark=f"DRILL, no incident. Code word {code}. " if own else "",
        )
        assert self._scene in SCENES
        rank = self._plan.culprits[0] if self._plan.culprits else self._plan.nproc - 1
        confirm_s = float(self._plan.parameters.get("confirm", 600))
        progress("monitoring", "Prometheus, Alertmanager, exporter, webhook")
        self._drill = PageDrill(
            self._scene, stack, writer, rank, self._within_s, progress, code=code, confirm_s=confirm_s
        )
        self._drill.start()

    def look(self, watch: Watch) -> None:
        """Pass on what is seen of the ranks."""
        if self._drill is not None:
            self._drill.look(watch)

    def holds(self, notice: Notice) -> bool:
        """Stalls that the drill made are its own."""
        return self._drill is not None and self._drill.holds(notice)

    def stop(self) -> None:
        """End the monitoring."""
        if self._drill is not None:
            self._drill.stop()

    def report(self) -> PageReport | None:
        """Links, messages, and what is missing."""
        return self._drill.report() if self._drill is not None else None


def _check(url: str) -> None:
    from harness.monitor.services import ask

    if not url:
        raise PrerequisiteError("mode own needs your own Alertmanager: --alertmanager URL")
    if not url.startswith(("http://", "https://")):
        raise PrerequisiteError(f"--alertmanager {url}: give it as http://HOST:PORT")
    try:
        ask(f"{url}/api/v2/status")
    except (OSError, ValueError) as error:
        raise PrerequisiteError(f"--alertmanager {url}: no Alertmanager answers there: {error}") from None
