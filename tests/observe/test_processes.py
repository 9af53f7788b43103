"""The end of processes that are not our children."""

import os
import subprocess
import time

import pytest

from harness.observe.processes import ExitWatch


@pytest.mark.parametrize("pidfd", [True, False])
def test_an_end_is_noticed_with_and_without_pidfd(monkeypatch: pytest.MonkeyPatch, pidfd: bool) -> None:
    """One that lives, one that ends, one that was gone before: with the kernel's help, and by asking."""
    if not pidfd:

        def refused(pid: int, flags: int = 0) -> int:
            raise OSError(38, os.strerror(38))

        monkeypatch.setattr(os, "pidfd_open", refused)
    lives = subprocess.Popen(("sleep", "60"))
    ends = subprocess.Popen(("cat",), stdin=subprocess.PIPE)
    gone = subprocess.Popen(("true",))
    gone.wait()
    watch = ExitWatch()
    try:
        for process in (lives, ends, gone):
            watch.add(process.pid)
        before = set(watch.ended())
        ends.communicate(b"")
        deadline = time.monotonic() + 5
        while ends.pid not in watch.ended() and time.monotonic() < deadline:
            time.sleep(0.01)

        assert lives.pid not in before | set(watch.ended())
        assert {ends.pid, gone.pid} <= set(watch.ended())
    finally:
        lives.kill()
        lives.wait()
        watch.close()
