"""The CLI's end of the launcher process. Files and pipes only; torch is never imported here."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from types import TracebackType

from harness.bundle.codec import dump_line
from harness.launch.request import LauncherMessage, LaunchRequest
from harness.model.errors import DrillError


class LauncherDied(DrillError):
    """The launcher process ended by itself; the message carries the end of its output."""


class LauncherClient:
    """One launcher process for any number of runs. Use as a context manager, from the main thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._ready = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> "LauncherClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the process if it does not run yet; it needs seconds until it says that it is ready."""
        if self._process is not None:
            return
        env: Mapping[str, str] = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            (sys.executable, "-u", "-m", "harness.launch.server", str(os.getpid())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=env,
            # Out of the terminal's process group: Ctrl-C reaches us only, and we stop the ranks.
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The launcher's pid."""
        return self._running().pid

    def send(self, request: LaunchRequest) -> None:
        """Ask for one run.

        Raises:
            LauncherDied: it cannot take requests any more.
        """
        stdin = self._running().stdin
        assert stdin is not None
        try:
            stdin.write(dump_line(request))
            stdin.flush()
        except BrokenPipeError:
            raise self._death() from None

    def receive(self, timeout_s: float) -> list[LauncherMessage]:
        """Messages that arrive within `timeout_s`; returns at the first, or empty.

        Raises:
            LauncherDied: the process ended.
        """
        stdout = self._running().stdout
        assert stdout is not None
        if not select.select([stdout], [], [], max(0.0, timeout_s))[0]:
            return []
        received = os.read(stdout.fileno(), 1 << 16)
        if not received:
            raise self._death()
        *lines, self._pending = (self._pending + received).split(b"\n")
        messages = [LauncherMessage(**json.loads(line)) for line in lines]
        self._ready = self._ready or bool(messages)
        return messages

    def close(self) -> None:
        """Stop the process and with it every rank that it still has."""
        if self._process is None:
            self._errors.close()
            return
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        if not self._ready:
            # Still importing torch: it would notice our end only afterwards, and it has no ranks yet.
            process.kill()
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._errors.close()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise LauncherDied("the launcher is not running")
        return self._process

    def _death(self) -> LauncherDied:
        process = self._running()
        try:
            code = process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            code = None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        how = f"signal {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
        said = f": {lines[-1]}" if lines else ""
        return LauncherDied(f"the launcher process ended ({how}){said}")


def wait_for_end(client: LauncherClient, pid: int, timeout_s: float) -> int | None:
    """The wait status of the agent `pid` once it ends, or None after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        for message in client.receive(left):
            if message.event == "ended" and message.pid == pid:
                return message.status
    return None
