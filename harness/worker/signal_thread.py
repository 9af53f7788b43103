"""What the calling thread got of its core."""

from resource import RUSAGE_THREAD, getrusage
from threading import get_ident
from time import thread_time_ns


def preemptions() -> int:
    """Involuntary context switches of the calling thread so far: how often it was put off its core.

    Source: getrusage(2), ru_nivcsw of RUSAGE_THREAD.
    """
    return getrusage(RUSAGE_THREAD).ru_nivcsw


class ThreadClock:
    """CPU seconds and preemptions of the calling thread between two looks.

    `preemptions`: the thread's count at the last look.
    """

    def __init__(self) -> None:
        self._thread = 0
        self._cpu_ns = 0
        self.preemptions = 0
        self._look()

    def add(self, record: dict[str, object]) -> None:
        """Add `cpu_s` and `preemptions` since the last look; neither where another thread looked last."""
        thread, cpu_ns = get_ident(), thread_time_ns()
        switches = getrusage(RUSAGE_THREAD).ru_nivcsw
        if thread == self._thread:
            record["cpu_s"] = (cpu_ns - self._cpu_ns) / 1e9
            record["preemptions"] = switches - self.preemptions
        self._thread, self._cpu_ns, self.preemptions = thread, cpu_ns, switches

    def restart(self) -> None:
        """Count from now on."""
        self._look()

    def _look(self) -> None:
        self._thread, self._cpu_ns, self.preemptions = get_ident(), thread_time_ns(), preemptions()
