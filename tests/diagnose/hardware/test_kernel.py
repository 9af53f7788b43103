"""The kernel log's word on who was killed for memory."""

from pathlib import Path

import pytest

from harness.diagnose.hardware.kernel import read_kernel_log


@pytest.mark.parametrize(
    "line",
    [
        "[ 2609.473138] Memory cgroup out of memory: Killed process 20038 (python3) total-vm:114892kB",
        "[12345.678901] Out of memory: Killed process 20038 (python) total-vm:9kB, anon-rss:9kB",
        "[12345.678901] Out of memory: Kill process 20038 (python) score 900 or sacrifice child",
    ],
)
def test_oom_kills(tmp_path: Path, line: str) -> None:
    """Old and new words, of a cgroup or of the whole machine; the line is cited."""
    (tmp_path / "kernel.log").write_text(f"[ 1.0] usb 1-1: new device\n{line}\n")

    (event,) = read_kernel_log(tmp_path / "kernel.log", tmp_path)

    assert (event.kind, event.pid, event.line) == ("oom", 20038, 2)


def test_no_log_is_no_event(tmp_path: Path) -> None:
    """A machine whose kernel log may not be read."""
    assert read_kernel_log(tmp_path / "kernel.log", tmp_path) == ()
