"""File descriptors that nobody else comes to own."""

import fcntl
import os
import resource

_HIGH = 900
"""Above what a rank usually has open, below the usual limit of 1024."""


def out_of_the_way(fd: int) -> int:
    """The same open file under a high number.

    Should somebody close all descriptors of the process, the next file opened gets a low number: never
    ours, so that records cannot end up in a checkpoint.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH if soft < 0 else min(_HIGH, soft - soft // 8))
    except OSError:
        return fd
    os.close(fd)
    return high
