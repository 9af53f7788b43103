"""Memory and output of this process at the end of a step, cheaply and without synchronising a device."""

import os
import time
from contextlib import suppress

from harness.worker.memory_device import DeviceMemory
from harness.worker.memory_heap import Heap
from harness.worker.memory_output import Output
from harness.worker.memory_pace import Pace
from harness.worker.signal_descriptor import out_of_the_way

SHARE = 0.002
"""At most this part of the time goes into reading memory and output.

With cold caches, as after a real step, all of it takes some 90 us: in every sixth step of 10 ms. The walk
through glibc's free lists alone takes 1 us on a young heap, 5 us in a process that has imported torch,
0.1 ms with 5,000 free chunks and 9 ms with 50,000 (measured): every few seconds then.
"""

_PAGE = os.sysconf("SC_PAGESIZE")


class MemoryReader:
    """Adds `rss_bytes`, `stdout_bytes` and what the allocator says to a record. Never raises OSError.

    The allocator is CUDA's where this process uses it, else glibc's. All fields are absent in steps in
    which reading them would take more than SHARE of the time: ask `pace` first.
    """

    def __init__(self) -> None:
        self._statm = -1
        with suppress(OSError):
            self._statm = out_of_the_way(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))
        self._output = Output()
        self._device = DeviceMemory()
        self._heap = Heap.find()
        self.pace = Pace(SHARE)

    def add(self, record: dict[str, object], t: float) -> None:
        """Add what is measured at the end of this step, at `t` unix seconds."""
        begun = time.perf_counter()
        pages = self._pages()
        if pages is not None:
            record["rss_bytes"], record["rss_shared_bytes"] = pages
        written = self._output.written()
        if written is not None:
            record["stdout_bytes"] = written
        found = self._device.read() or (self._heap.read() if self._heap else None)
        if found:
            record.update(found)
        self.pace.took(t, time.perf_counter() - begun)

    def close(self) -> None:
        """Close what is open."""
        with suppress(OSError):
            os.close(self._statm)
        self._statm = -1

    def _pages(self) -> tuple[int, int] | None:
        """Resident bytes, and those of them that are pages of files or shared: statm(5)."""
        try:
            found = os.pread(self._statm, 128, 0).split(b" ", 3)
            return int(found[1]) * _PAGE, int(found[2]) * _PAGE
        except OSError:  # somebody has closed it
            return None
