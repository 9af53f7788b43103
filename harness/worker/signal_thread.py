"""What the calling thread got of its core."""

import resource
import threading
import time


def preemptions() -> int:
    """Involuntary context switches of the calling thread so far: how often it was put off its core.

    Source: getrusage(2), ru_nivcsw of RUSAGE_THREAD.
    """
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


class ThreadClock:
    """CPU seconds and preemptions of the calling thread between two looks.

    `preemptions`: the thread's count at the last look.
    """

    def __init__(self) -> None:
        self._look()

    def add(self, record: dict[str, int | float | str | bool]) -> None:
        """Add `cpu_s` and `preemptions` since the last look; neither where another thread looked last."""
        thread, cpu_ns, switches = self._thread, self._cpu_ns, self.preemptions
        self._look()
        if thread == self._thread:
            record["cpu_s"] = (self._cpu_ns - cpu_ns) / 1e9
            record["preemptions"] = self.preemptions - switches

    def restart(self) -> None:
        """Count from now on."""
        self._look()

    def _look(self) -> None:
        self._thread = threading.get_ident()
        self._cpu_ns = time.thread_time_ns()
        self.preemptions = preemptions()
