"""Dying with the parent: the kernel ends a child whose parent is gone, whatever ended the parent."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the thread that forked us ends.

    `parent` is the pid that the caller believes to be its parent; if that one is gone already, exit.
    Source: prctl(2). The request survives exec, not fork.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def children_die_with_us() -> None:
    """Make every process that this one forks from Python (loader workers) die with it."""

    def adopt() -> None:
        die_with_parent(os.getppid())

    os.register_at_fork(after_in_child=adopt)
