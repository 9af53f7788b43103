"""Dumps of a job that we did not start: which count, which are left from earlier, and what is asked for."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.observe import job_dumps
from harness.observe.dumps import PIPE_VARIABLE
from harness.observe.job_dumps import JobDumps
from harness.observe.jobs import Job, RankProcess
from harness.observe.reach import Reach

WORLD = 4


@pytest.fixture
def sleeper(tag: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for every rank."""
    process = subprocess.Popen((sys.executable, "-c", "import time; time.sleep(60)"))
    yield process
    process.kill()
    process.wait()


def dumps_of(pid: int, ranks: tuple[int, ...], cwd: Path, **environ: str) -> JobDumps:
    """Dumps of ranks that started ten seconds ago."""
    started = time.time() - 10
    processes = {r: RankProcess(r, r, WORLD, 0, pid, 1, started, environ, cwd) for r in ranks}
    return JobDumps(Job(processes), {r: Reach(pid) for r in ranks})


def write(path: Path, age_s: float = 0.0, content: bytes = b"dump") -> Path:
    """A dump that was written `age_s` ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_a_dump_older_than_its_process_is_of_another_job(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """The default folder holds what earlier jobs left: that accuses nobody here."""
    dumps = dumps_of(sleeper.pid, (0, 1), tmp_path, TORCH_FR_DUMP_TEMP_FILE="fr/rank_")
    write(tmp_path / "fr" / "rank_0", age_s=2)
    write(tmp_path / "fr" / "rank_1", age_s=3600)

    copied, failed = dumps.copy(lambda rank: tmp_path / "out" / str(rank), WORLD)

    assert (copied, failed) == ([0], {})
    assert "older than the process" in dumps.why_absent(1, 0.0, moving=False)


@pytest.mark.parametrize("place", ["xdg/torch/comm_lib_trace_rank_", "here/", "old"])
def test_where_dumps_lie(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's default folder, a prefix that is a folder, and the default of older torch."""
    environ = {"HOME": "/nowhere", "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    if place == "here/":
        environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = "here/"
    monkeypatch.setattr(job_dumps, "_OLD_DEFAULT", str(tmp_path / "old"))
    dumps = dumps_of(sleeper.pid, (2,), tmp_path, **environ)
    file = write(Path(f"{tmp_path}/{place}2"), age_s=1)

    assert dumps.fresh(2) == file


def test_only_the_answer_counts_of_a_rank_that_was_asked(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dump from before the asking shows a rank behind its peers: it would accuse it."""
    monkeypatch.setattr(job_dumps, "PIPE_WAIT_S", 0.6)
    environ = {"TORCH_FR_DUMP_TEMP_FILE": "rank_", PIPE_VARIABLE: "fr_"}
    dumps = dumps_of(sleeper.pid, (0, 1, 2), tmp_path, **environ)
    for rank in (0, 1):
        os.mkfifo(tmp_path / f"fr_{rank}.pipe")
        write(tmp_path / f"rank_{rank}", age_s=5)
    mute = os.open(tmp_path / "fr_1.pipe", os.O_RDWR | os.O_NONBLOCK)
    answering = os.open(tmp_path / "fr_0.pipe", os.O_RDWR)

    def answer() -> None:
        os.read(answering, 1)
        write(tmp_path / "rank_0", content=b"fresh")

    thread = threading.Thread(target=answer)
    thread.start()
    dumps.ask()
    dumps.await_answers()
    dumps.give_up_asking()
    thread.join()
    copied, _ = dumps.copy(lambda rank: tmp_path / "out" / str(rank), WORLD)
    os.close(mute)
    os.close(answering)

    assert copied == [0]
    assert (tmp_path / "out" / "0").read_bytes() == b"fresh"
    assert "no dump within" in dumps.why_absent(1, 0.0, moving=False)
    assert "no dump pipe" in dumps.why_absent(2, 0.0, moving=False)


def test_earlier_dumps_count_where_nobody_answers(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its watchdogs have dumped and died a job answers no pipe: what they wrote is the evidence."""
    monkeypatch.setattr(job_dumps, "PIPE_WAIT_S", 0.1)
    environ = {"TORCH_FR_DUMP_TEMP_FILE": "rank_", PIPE_VARIABLE: "fr_"}
    dumps = dumps_of(sleeper.pid, (0,), tmp_path, **environ)
    os.mkfifo(tmp_path / "fr_0.pipe")
    mute = os.open(tmp_path / "fr_0.pipe", os.O_RDWR | os.O_NONBLOCK)
    write(tmp_path / "rank_0", age_s=5)

    dumps.ask()
    dumps.await_answers()
    dumps.give_up_asking()
    os.close(mute)

    assert dumps.absent() == []


def test_dumps_of_other_nodes_in_the_same_folder_are_taken_if_of_this_moment(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """On a shared file system one node has them all; ranks beyond the world and old ones are not of it."""
    dumps = dumps_of(sleeper.pid, (0,), tmp_path, TORCH_FR_DUMP_TEMP_FILE="rank_")
    for name, age_s in (("rank_0", 1), ("rank_1", 20), ("rank_2", 3600), ("rank_9", 1), ("rank_1.log", 1)):
        write(tmp_path / name, age_s)

    copied, _ = dumps.copy(lambda rank: tmp_path / "out" / str(rank), WORLD)

    assert copied == [0, 1]


def test_a_dump_that_still_grows_is_copied_whole(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """torch writes piece by piece: a copy is taken once the file has settled."""
    dumps = dumps_of(sleeper.pid, (0,), tmp_path, TORCH_FR_DUMP_TEMP_FILE="rank_")
    file = tmp_path / "rank_0"
    file.write_bytes(b"first")

    def grow() -> None:
        for _ in range(4):
            time.sleep(0.1)
            with file.open("ab") as opened:
                opened.write(b" more")

    thread = threading.Thread(target=grow)
    thread.start()
    dumps.copy(lambda rank: tmp_path / "out" / str(rank), WORLD)
    thread.join()

    assert (tmp_path / "out" / "0").read_bytes() == file.read_bytes()


def test_nobody_waits_for_a_job_that_cannot_dump(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """No NCCL in the process: there is no watchdog whose dump could still come."""
    dumps = dumps_of(sleeper.pid, (0,), tmp_path, TORCH_FR_DUMP_TEMP_FILE="rank_")
    start = time.monotonic()

    dumps.await_watchdog(60.0)

    assert time.monotonic() - start < 1.0
    assert not dumps.may_dump(0)


def test_waiting_ends_when_the_last_dump_has_arrived(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--wait is a bound, not a duration."""
    dumps = dumps_of(sleeper.pid, (0, 1), tmp_path, TORCH_FR_DUMP_TEMP_FILE="rank_")
    monkeypatch.setattr(JobDumps, "may_dump", lambda self, rank: True)
    write(tmp_path / "rank_0")
    timer = threading.Timer(0.3, write, (tmp_path / "rank_1",))
    timer.start()
    start = time.monotonic()

    dumps.await_watchdog(60.0)
    timer.join()

    assert time.monotonic() - start < 10.0
    assert dumps.absent() == []
