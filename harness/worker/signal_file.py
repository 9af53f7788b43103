"""Where records go: straight to the kernel, or through a thread where that could wait."""

import atexit
import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from harness.worker.signal_appender import Appender
from harness.worker.signal_mounts import on_network
from harness.worker.signal_thread import preemptions

SLOW_S = 0.05
"""A write or an open that took longer hands the file to the thread: the page cache takes microseconds."""

STUCK_S = 1.0
"""The same, even if the thread lost its core meanwhile, which makes any call look slow."""

QUEUE = 1024
"""Records that wait for the thread at most; what does not fit is lost."""

BATCH = 256
"""Records that the thread writes at once at most."""

FLUSH_S = 1.0
"""How long closing, also at exit, waits for the thread at most."""


class SignalFile:
    """One rank's file. `write` returns at once on local disks and on network filesystems alike.

    On a local disk the caller writes, so that a record is safe from a SIGKILL when `write` returns. On a
    network filesystem, or once a call was slow, a daemon thread opens and writes. A forked child writes
    nothing: the file is its parent's.
    """

    def __init__(self, path: Path) -> None:
        self._appender = Appender(path)
        self._dropped = 0
        self._pid = os.getpid()
        self._queue: SimpleQueue[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._writing = 0
        self._closed = False
        if on_network(path):
            self._hand_over()
            return
        begun, switches = time.perf_counter(), preemptions()
        self._appender.open()
        self._judge(begun, switches)

    @property
    def lost(self) -> int:
        """Records that are not in the file."""
        return self._dropped + self._appender.lost

    @property
    def problem(self) -> str | None:
        """Why the last lost record was lost, where the filesystem said so."""
        return self._appender.problem

    @property
    def straight(self) -> bool:
        """Whether the caller itself writes."""
        return self._queue is None

    def write(self, line: bytes, switches: int) -> None:
        """Append one line, or queue it, or count it as lost. `switches`: `preemptions()` just before."""
        if self._closed or os.getpid() != self._pid:
            self._dropped += 1
        elif self._queue is None:
            begun = time.perf_counter()
            self._appender.append(line)
            if time.perf_counter() - begun > SLOW_S:
                self._judge(begun, switches)
        elif self._queue.qsize() < QUEUE:
            self._queue.put(line)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Close the file. Where a thread writes, wait up to FLUSH_S for it; what it leaves counts as lost."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._queue is None or self._thread is None:
            self._appender.close()
            return
        atexit.unregister(self.close)
        self._queue.put(b"")
        self._thread.join(FLUSH_S)
        if self._thread.is_alive():
            self._dropped += max(0, self._queue.qsize() - 1) + self._writing

    def __enter__(self) -> "SignalFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _judge(self, begun: float, switches: int) -> None:
        took = time.perf_counter() - begun
        if took > SLOW_S and (took > STUCK_S or preemptions() == switches):
            self._hand_over()

    def _hand_over(self) -> None:
        queue: SimpleQueue[bytes] = SimpleQueue()
        thread = threading.Thread(target=self._serve, args=(queue,), name="drill-signals", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads for this user: a slow record is better than none
            return
        self._queue, self._thread = queue, thread
        atexit.register(self.close)

    def _serve(self, queue: "SimpleQueue[bytes]") -> None:
        lines: list[bytes] = []
        while b"" not in lines:
            lines = [queue.get()]
            while not queue.empty() and len(lines) < BATCH:
                lines.append(queue.get())
            self._writing = len(lines) - lines.count(b"")
            self._appender.append(b"".join(lines))
            self._writing = 0
        self._appender.close()
