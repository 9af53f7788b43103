"""A whole monitoring stack for one run: exporter, Prometheus, Alertmanager and a webhook, on loopback."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from harness.diagnose.signals.thresholds import ALERTS, AlertThresholds
from harness.monitor.binaries import Binaries
from harness.monitor.rule_files import Notifying, Scraping, write_files
from harness.monitor.services import LOOPBACK, Alertmanager, ExporterProcess, Prometheus, Service
from harness.monitor.webhook import Webhook

REAL_S = 60.0
"""From this threshold on, scraping and waiting are as in production; below it is a rehearsal's pace."""


@dataclass(frozen=True)
class Pace:
    """How often things are looked at, seconds."""

    interval_s: float = 5.0
    group_wait_s: float = 5.0
    group_interval_s: float = 10.0
    """Far shorter than in production (five minutes): the end of the break is told at the end of it."""
    reads_s: float = 0.5

    @classmethod
    def of(cls, threshold_s: float) -> "Pace":
        """The real one, or a quicker one for a rehearsal."""
        return cls() if threshold_s >= REAL_S else cls(0.5, 1.0, 1.5, 0.2)


def limits_of(threshold_s: float) -> AlertThresholds:
    """The alert thresholds with another floor of the stall rule; the exporter may be silent no longer."""
    return dataclasses.replace(
        ALERTS,
        hang_s=threshold_s,
        silent_s=min(ALERTS.silent_s, threshold_s),
        resolve_after_s=3 * Pace.of(threshold_s).interval_s,
    )


class Stack:
    """Start it, stop it whatever happens. Everything that it writes is under `folder`."""

    def __init__(
        self,
        binaries: Binaries,
        run: Path,
        folder: Path,
        job: str,
        threshold_s: float,
        others: tuple[str, ...] = (),
        mark: str = "",
        webhook: Webhook | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.kernel_log = self.folder / "kernel.log"
        self.pace = pace or Pace.of(threshold_s)
        self.limits = limits_of(threshold_s)
        self.webhook = webhook or Webhook()
        self.exporter = ExporterProcess(
            self.folder, run.resolve(), job, self.kernel_log, self.pace.reads_s, threshold_s
        )
        self.alertmanager = Alertmanager(binaries.alertmanager, self.folder)
        self.prometheus = Prometheus(binaries.prometheus, self.folder)
        self._others = others
        self._mark = mark

    @property
    def services(self) -> tuple[Service, ...]:
        """The three programs, in the order in which they start."""
        return self.exporter, self.alertmanager, self.prometheus

    def start(self) -> None:
        """Bring everything up.

        Raises:
            ServiceDied: one of the programs does not start.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.kernel_log.touch()
        self.webhook.__enter__()
        self._write(())
        self.alertmanager.start()
        self.exporter.start()
        self._write((self.alertmanager.url, *self._others))
        self.prometheus.start()

    def stop(self) -> None:
        """End everything, those who would complain first."""
        for service in reversed(self.services):
            service.stop()
        self.webhook.close()

    def dead(self) -> Service | None:
        """A program that ended by itself, if one has; the exporter may be killed on purpose."""
        return next((s for s in (self.alertmanager, self.prometheus) if not s.alive), None)

    def _write(self, alertmanagers: tuple[str, ...]) -> None:
        pace = self.pace
        write_files(
            self.folder,
            self.limits,
            Scraping((f"{LOOPBACK}:{self.exporter.port}",), (), alertmanagers, pace.interval_s),
            Notifying(
                self.webhook.url, None, group_wait_s=pace.group_wait_s, group_interval_s=pace.group_interval_s
            ),
            mark=self._mark,
        )
