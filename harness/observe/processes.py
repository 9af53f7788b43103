"""Processes of ranks as the kernel shows them: alive, how, with which children."""

import os
import select
import time
from dataclasses import dataclass, field

import psutil


@dataclass
class ExitWatch:
    """Notices the end of processes that are not our children, at once, by pidfd.

    Where a sandbox or an old kernel has none, each look asks for every process.
    """

    _fds: dict[int, int] = field(default_factory=dict)
    _asked: set[int] = field(default_factory=set)
    _gone: dict[int, float] = field(default_factory=dict)

    def add(self, pid: int) -> None:
        """Watch `pid`; one that is gone already is reported with the next poll."""
        if pid in self._fds or pid in self._asked or pid in self._gone:
            return
        try:
            self._fds[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone[pid] = time.time()
        except OSError:
            self._asked.add(pid)

    def ended(self) -> dict[int, float]:
        """Every watched pid that has ended, with the time (unix seconds) when we noticed."""
        if self._fds:
            poller = select.poll()
            pids = {fd: pid for pid, fd in self._fds.items()}
            for fd in pids:
                poller.register(fd, select.POLLIN)
            for fd, _ in poller.poll(0):
                self._gone[pids[fd]] = time.time()
                os.close(self._fds.pop(pids[fd]))
        for pid in [pid for pid in self._asked if not is_alive(pid)]:
            self._gone[pid] = time.time()
            self._asked.remove(pid)
        return self._gone

    def close(self) -> None:
        """Let go of all processes."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def state_of(pid: int) -> str | None:
    """psutil's word for a process's state (running, sleeping, stopped, zombie, disk-sleep), None if gone."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return None


def is_alive(pid: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    return state_of(pid) not in (None, psutil.STATUS_ZOMBIE)


def descendants(pid: int) -> tuple[int, ...]:
    """All children of a process, at any depth."""
    try:
        return tuple(child.pid for child in psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return ()


def kill_tree(pid: int, timeout_s: float = 2.0) -> None:
    """SIGKILL a process and all its descendants, and wait until they are gone."""
    try:
        root = psutil.Process(pid)
        victims = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for victim in victims:
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(victims, timeout=timeout_s)
