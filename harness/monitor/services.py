"""Real Prometheus, Alertmanager and exporter on free loopback ports, for as long as a drill runs."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode

from harness.model.errors import DrillError

LOOPBACK = "127.0.0.1"
START_LIMIT_S = 20.0
STOP_LIMIT_S = 5.0
ASK_LIMIT_S = 5.0
TRIES = 3
"""A free port may be taken before the program takes it."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class ServiceDied(DrillError):
    """A monitoring program ended by itself; the message carries the end of its output."""

    exit_code = 3


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def ask(url: str) -> Json:
    """The JSON document at a URL.

    Raises:
        OSError: nobody answers, or not in time, or not with success.
        ValueError: the answer is no JSON.
    """
    with urllib.request.urlopen(url, timeout=ASK_LIMIT_S) as answer:
        found: Json = json.load(answer)
        return found


class Service:
    """One program; its output goes to ``NAME.log`` in `folder`. Start it; stop it whatever happens."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its root, without a slash at the end."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process; 0 before it was started."""
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            ServiceDied: it does not come up.
        """
        for left in reversed(range(TRIES)):
            self.port = self.port or free_port()
            self._spawn()
            if self._wait_until_ready():
                return
            self.stop()
            taken = re.search(r"address already in use", self._said())
            if not (left and taken):
                break
            self.port = 0
        raise ServiceDied(f"{self.name} does not start: {self._said()}; all it said: {self.log}")

    def stop(self) -> None:
        """End it; kill it if it does not heed."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()

    def kill(self) -> None:
        """As the kernel or a broken node ends it; the port is kept for the next start."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def command(self) -> Sequence[str]:
        """What to run, on `self.port`."""
        raise NotImplementedError

    def ready_url(self) -> str:
        """What answers with success once it is ready."""
        raise NotImplementedError

    def _spawn(self) -> None:
        command = (sys.executable, "-m", "harness.monitor.child", str(os.getpid()), *self.command())
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches us only, and we stop it.
                start_new_session=True,
            )

    def _wait_until_ready(self) -> bool:
        deadline = time.monotonic() + START_LIMIT_S
        while self.alive and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(self.ready_url(), timeout=ASK_LIMIT_S):
                    return self.alive
            except OSError:
                time.sleep(0.02)
        return False

    def _said(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1] if lines else "it said nothing"


class Prometheus(Service):
    """Prometheus with the rules and the prometheus.yml of its folder; its database goes when it stops."""

    def __init__(self, program: Path, folder: Path) -> None:
        super().__init__("prometheus", folder)
        self._program = program
        self._data = folder / "prometheus-data"

    def command(self) -> Sequence[str]:
        return (
            str(self._program),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._data}",
            "--storage.tsdb.retention.time=2h",
            f"--web.listen-address={LOOPBACK}:{self.port}",
            "--log.level=warn",
        )

    def ready_url(self) -> str:
        return f"{self.url}/-/ready"

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self._data, ignore_errors=True)

    def value(self, query: str) -> float | None:
        """The first value of an instant query; None where it has none or nobody answers."""
        try:
            found = ask(f"{self.url}/api/v1/query?{urlencode({'query': query})}")
            assert isinstance(found, dict) and isinstance(found["data"], dict)
            result = found["data"]["result"]
            first = result[0] if isinstance(result, list) and result else None
            if not isinstance(first, dict):
                return None
            value = first["value"]
            return float(str(value[1])) if isinstance(value, list) else None
        except (OSError, ValueError):
            return None

    def firing(self, alert: str) -> bool:
        """Whether an alert's rule fires."""
        return self.value(f'ALERTS{{alertname="{alert}", alertstate="firing"}}') is not None


_SAID = re.compile(
    r'ts=(?P<at>\S+) .*msg=(?P<what>"Received alert"|flushing) alerts?=\[?(?P<alerts>.*)$', re.M
)


class Alertmanager(Service):
    """Alertmanager with the alertmanager.yml of its folder. Its log tells when it flushed a group."""

    def __init__(self, program: Path, folder: Path) -> None:
        super().__init__("alertmanager", folder)
        self._program = program
        self._data = folder / "alertmanager-data"

    def command(self) -> Sequence[str]:
        return (
            str(self._program),
            f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self._data}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
            "--cluster.listen-address=",
            # Says when a group is flushed: where waiting for more alerts ends and delivery begins.
            "--log.level=debug",
        )

    def ready_url(self) -> str:
        return f"{self.url}/-/ready"

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self._data, ignore_errors=True)

    def alerts(self, name: str) -> list[Mapping[str, Json]]:
        """Active alerts of a name, as its API has them; empty where nobody answers."""
        try:
            query = urlencode({"filter": f'alertname="{name}"'})
            found = ask(f"{self.url}/api/v2/alerts?{query}")
        except (OSError, ValueError):
            return []
        return [alert for alert in found if isinstance(alert, dict)] if isinstance(found, list) else []

    def inhibited(self, name: str) -> bool:
        """Whether an alert is there and silenced by another one."""
        statuses = [alert.get("status") for alert in self.alerts(name)]
        return any(isinstance(status, dict) and status.get("inhibitedBy") for status in statuses)

    def received(self, alert: str) -> list[float]:
        """When Prometheus told it that an alert is active, unix seconds, oldest first."""
        return self._times('"Received alert"', alert)

    def flushed(self, alert: str) -> list[float]:
        """When it sent a group with that alert active on its way, unix seconds, oldest first."""
        return self._times("flushing", alert)

    def _times(self, what: str, alert: str) -> list[float]:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        active = re.compile(rf"\b{re.escape(alert)}\[\w+\]\[active\]")
        found = [f["at"] for f in _SAID.finditer(text) if f["what"] == what and active.search(f["alerts"])]
        return [datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp() for at in found]


class ExporterProcess(Service):
    """`drill monitor export` on a run's folder."""

    def __init__(
        self, folder: Path, run: Path, job: str, kernel_log: Path, interval_s: float, threshold_s: float
    ) -> None:
        super().__init__("exporter", folder)
        self._run, self._job, self._kernel_log, self._interval_s = run, job, kernel_log, interval_s
        self._threshold_s = threshold_s

    def command(self) -> Sequence[str]:
        return (
            *(sys.executable, "-m", "harness.cli", "monitor", "export", "--dir", str(self._run / "signals")),
            *("--port", str(self.port), "--job", self._job, "--kernel-log", str(self._kernel_log)),
            *("--interval", f"{self._interval_s:g}", "--threshold", f"hang_s={self._threshold_s:g}"),
        )

    def ready_url(self) -> str:
        return f"{self.url}/metrics"
