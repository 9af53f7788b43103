"""Logs, containers, kernel log and devices of a job that somebody else started."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.bundle.layout import Layout
from harness.observe.copying import copy_end
from harness.observe.gpus import gpu_state
from harness.observe.job_logs import JobLogs
from harness.observe.jobs import Job, RankProcess
from harness.observe.kernel import dmesg
from harness.observe.reach import Reach

SLEEP = "import time; print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def running(tag: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of the test; they are ended with it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def logs_of(processes: dict[int, RankProcess], root: Path, log_dir: Path | None = None) -> JobLogs:
    """Copy what these ranks write into a bundle under `root`."""
    reaches = {rank: Reach(process.pid) for rank, process in processes.items()}
    logs = JobLogs(Job(processes), reaches, Layout(root), log_dir)
    logs.copy()
    return logs


def rank(number: int, pid: int, parent: int = 1, **environ: str) -> RankProcess:
    """A rank that has just started."""
    started = psutil.Process(pid).create_time()
    return RankProcess(number, number, 2, 0, pid, parent, started, environ, Path("/"))


def test_torchruns_folders_are_found_through_what_ranks_write_to(
    tmp_path: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    """stderr goes to <run>/attempt_<n>/<local rank>/stderr.log: the layout of the bundle is the same."""
    own = tmp_path / "logs" / "job_x1" / "attempt_3" / "1"
    own.mkdir(parents=True)
    with (own / "stdout.log").open("wb") as out, (own / "stderr.log").open("wb") as err:
        err.write(b"Traceback\n")
        err.flush()
        running.append(subprocess.Popen((sys.executable, "-c", SLEEP), stdout=out, stderr=err))
        pid = running[0].pid

    logs = logs_of({1: rank(1, pid)}, tmp_path / "bundle")

    copied = tmp_path / "bundle" / "logs" / "job_x1" / "attempt_3" / "1"
    assert (copied / "stderr.log").read_bytes() == b"Traceback\n"
    assert (logs.copied, logs.lacking) == (2, [])


def test_a_log_that_was_deleted_meanwhile_is_still_copied(
    tmp_path: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    """The rank holds it open: that is enough."""
    file = tmp_path / "slurm-17.out"
    with file.open("wb") as out:
        out.write(b"step 1\n")
        out.flush()
        running.append(subprocess.Popen((sys.executable, "-c", SLEEP), stdout=out, stderr=out))
    file.unlink()

    logs_of({0: rank(0, running[0].pid)}, tmp_path / "bundle")

    assert (tmp_path / "bundle" / "logs" / "shared" / "slurm-17.out").read_bytes().startswith(b"step 1\n")


def test_output_into_a_pipe_is_not_touched(tmp_path: Path, running: list[subprocess.Popen[bytes]]) -> None:
    """Reading a pipe would take the job's output away: how to have logs next time is said instead."""
    running.append(
        subprocess.Popen((sys.executable, "-c", SLEEP), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    )

    logs = logs_of({0: rank(0, running[0].pid)}, tmp_path / "bundle")

    assert running[0].stdout is not None
    assert running[0].stdout.readline() == b"ready\n"
    assert "--redirects 3" in logs.lacking[0].why


def test_a_log_dir_gives_the_runs_of_this_job_only(
    tmp_path: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    """Folders of earlier runs were last written before the ranks began."""
    running.append(
        subprocess.Popen((sys.executable, "-c", SLEEP), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    )
    for run, age_s in (("new", 0), ("old", 3600)):
        file = tmp_path / "logs" / run / "attempt_0" / "0" / "stderr.log"
        file.parent.mkdir(parents=True)
        file.write_text(run)
        os.utime(file, (file.stat().st_mtime - age_s,) * 2)

    logs_of({0: rank(0, running[0].pid)}, tmp_path / "bundle", tmp_path / "logs")

    assert [p.name for p in (tmp_path / "bundle" / "logs").iterdir()] == ["new"]


def test_the_end_of_a_long_log_is_kept(tmp_path: Path) -> None:
    """Whole lines only, and the copy is as private as the original."""
    source = tmp_path / "long.log"
    source.write_text("".join(f"line {n}\n" for n in range(1000)))
    source.chmod(0o600)

    skipped = copy_end(source, tmp_path / "copy.log", limit_bytes=100)

    text = (tmp_path / "copy.log").read_text()
    assert text.startswith("line 9") and text.endswith("line 999\n")
    assert skipped + len(text) == source.stat().st_size
    assert (tmp_path / "copy.log").stat().st_mode & 0o777 == 0o600


def test_files_of_a_container_are_reached_through_its_root(
    tmp_path: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    """The same path is another file there, and stays readable after the process has ended."""
    inside = f"mount -t tmpfs none {tmp_path} && echo theirs > {tmp_path}/file && echo ready && exec sleep 60"
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    running.append(subprocess.Popen(("unshare", "-m", "sh", "-c", inside), stdout=subprocess.PIPE))
    assert running[0].stdout is not None
    if running[0].stdout.readline() != b"ready\n":
        pytest.skip("mount namespaces are not permitted here")
    (tmp_path / "file").write_text("ours\n")

    reach = Reach(running[0].pid)

    assert reach.foreign
    assert reach.path(tmp_path / "file").read_text() == "theirs\n"
    assert not Reach(os.getpid()).foreign
    reach.close()


def program(folder: Path, name: str, script: str) -> None:
    """A stand-in for a tool of the system."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_kernel_log_that_is_forbidden_says_how_to_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dmesg's own words, and the remedy."""
    program(
        tmp_path / "bin",
        "dmesg",
        "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    log, why = dmesg()

    assert log == b""
    assert why is not None and "dmesg_restrict" in why


def test_devices_and_who_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One mapping a device; a process's device has a name and a UUID. An unknown field does not spoil it."""
    program(
        tmp_path / "bin",
        "nvidia-smi",
        'case "$1" in\n'
        "*remapped*) echo 'Field \"remapped_rows.pending\" is not a valid field to query.'; exit 2;;\n"
        '*compute-apps*) echo "41, GPU-b";;\n'
        '*) for i in a b; do echo "0, H100, GPU-$i, 00:0$i, 100, 1, 2, 60, 300.5, 1410"; done;;\n'
        "esac",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    state = gpu_state()

    assert [gpu["pci.bus_id"] for gpu in state.gpus] == ["00:0a", "00:0b"]
    assert state.device_of(41) == ("H100", "GPU-b")
    assert state.device_of(42) == (None, None)


def test_a_driver_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that fell off the bus makes nvidia-smi hang."""
    program(tmp_path / "bin", "nvidia-smi", "exec sleep 30")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr("harness.observe.gpus._SMI_TIMEOUT_S", 0.1)

    state = gpu_state()

    assert state.gpus == ()
    assert state.error is not None and "the driver hangs" in state.error
