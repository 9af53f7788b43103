"""py-spy on every rank at once, without stopping any of them."""

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.observe.processes import descendants, is_alive, state_of

SAMPLE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class ProcessSample:
    """One process: py-spy's own JSON text, or why there is none. `state` is psutil's word."""

    pid: int
    role: str
    state: str | None
    threads: str | None
    error: str | None


def find_py_spy() -> str | None:
    """py-spy beside our interpreter, or on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def sample_ranks(pids: Mapping[int, int]) -> dict[int, tuple[ProcessSample, ...]]:
    """Sample the processes of `pids` (rank -> pid) and their children, all in parallel.

    Non-blocking: a stopped process can be read and a running one is paused less than a millisecond.
    """
    py_spy = find_py_spy()
    targets = [
        (rank, child, "rank" if child == pid else "child")
        for rank, pid in pids.items()
        for child in (pid, *descendants(pid))
    ]
    states = {pid: state_of(pid) for _, pid, _ in targets}
    running = [(rank, pid, role, _start(py_spy, pid)) for rank, pid, role in targets]
    deadline = time.monotonic() + SAMPLE_TIMEOUT_S
    samples: dict[int, tuple[ProcessSample, ...]] = {}
    for rank, pid, role, process in running:
        threads, error = _finish(process, deadline)
        if error and not is_alive(pid):
            error = "the process has ended"
        sample = ProcessSample(pid, role, states[pid], threads, error)
        samples[rank] = (*samples.get(rank, ()), sample)
    return samples


def dump_threads(pid: int) -> tuple[str | None, str | None]:
    """py-spy's JSON of one process's threads, or why there is none. Non-blocking, within SAMPLE_TIMEOUT_S."""
    return _finish(_start(find_py_spy(), pid), time.monotonic() + SAMPLE_TIMEOUT_S)


def _start(py_spy: str | None, pid: int) -> "subprocess.Popen[str] | str":
    if py_spy is None:
        return "py-spy is not installed: pip install py-spy"
    command = (py_spy, "dump", "--json", "--nonblocking", "--pid", str(pid))
    try:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
    except OSError as error:
        return f"{py_spy}: {error.strerror}"


def _finish(process: "subprocess.Popen[str] | str", deadline: float) -> tuple[str | None, str | None]:
    if isinstance(process, str):
        return None, process
    try:
        out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, f"py-spy took longer than {SAMPLE_TIMEOUT_S:g} s"
    if process.returncode == 0:
        return out, None
    said = [line.strip() for line in err.splitlines() if line.startswith(("Error", "Reason"))]
    return None, f"py-spy: {'; '.join(said) or f'exit code {process.returncode}'}"
