"""What some drills need of the machine: namespaces, a limited cgroup, a card. Absent is exit code 4."""

import ctypes
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.observe.kernel import read_kernel_log
from harness.observe.machine import look

CGROUPS = Path("/sys/fs/cgroup")
CLONE_NEWNET = 0x40000000
LIMIT_BYTES = 128 << 20
"""Memory that a process may allocate once it has moved in; what it had before stays charged elsewhere."""


def why_not(need: str) -> str | None:
    """Why this machine does not meet a need, or None if it does."""
    return {
        "network_namespace": _no_network_namespace,
        "memory_cgroup": _no_memory_cgroup,
        "gpu": _no_gpu,
    }[need]()


@dataclass(frozen=True)
class MemoryCgroup:
    """A cgroup with a limit on memory, of either version. Remove it when all its processes are gone."""

    folder: Path

    @classmethod
    def create(cls, limit_bytes: int = LIMIT_BYTES) -> "MemoryCgroup":
        """Make one.

        Raises:
            OSError: the kernel does not permit it, or has no memory controller here.
        """
        first_version = CGROUPS / "memory"
        if not first_version.is_dir():
            _enable_memory(CGROUPS)
        parent = first_version if first_version.is_dir() else CGROUPS
        folder = parent / f"drill-{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir()
        limit = "memory.limit_in_bytes" if first_version.is_dir() else "memory.max"
        try:
            (folder / limit).write_text(str(limit_bytes))
        except OSError:
            folder.rmdir()
            raise
        return cls(folder)

    def remove(self, limit_s: float = 2.0) -> None:
        """Remove it; the kernel lets go of the last process a moment after its end."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                self.folder.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def _enable_memory(root: Path) -> None:
    """cgroup v2: children of the root have a memory controller only if the root hands it down."""
    with suppress(OSError):
        (root / "cgroup.subtree_control").write_text("+memory")


def _no_memory_cgroup() -> str | None:
    try:
        MemoryCgroup.create().remove()
    except OSError as error:
        return f"a memory-limited cgroup cannot be made under {CGROUPS} ({error.strerror}): run as root"
    if read_kernel_log() is None:
        return "the kernel log cannot be read, which names who was killed: run as root"
    return None


def _no_gpu() -> str | None:
    return look().why_no_nccl


def _no_network_namespace() -> str | None:
    reason = _in_a_child(lambda: ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET))
    return f"a network namespace cannot be made ({reason}): run as root" if reason else None


def _in_a_child(act: Callable[[], int]) -> str | None:
    """Try a system call in a child process. Returns the error's text, or None if it succeeds."""
    pid = os.fork()
    if pid == 0:
        failed = act()
        os._exit(ctypes.get_errno() if failed else 0)
    _, status = os.waitpid(pid, 0)
    number = os.waitstatus_to_exitcode(status)
    return os.strerror(number) if number else None
