"""Real damage and real waits: full disks, kills, forks, writes that block, files that end inside a line."""

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.worker import Signals, signal_file
from harness.worker.signal_file import QUEUE, SignalFile
from harness.worker.signal_thread import preemptions

HEAD = "import os, resource, signal, sys\nfrom pathlib import Path\nfrom harness.worker import Signals\n"


def steps(path: Path) -> list[int]:
    """The steps of the whole records; torn lines are passed over, glued ones fail."""
    found = []
    for line in path.read_bytes().splitlines():
        assert line.count(b'"t":') <= 1
        try:
            found.append(json.loads(line)["step"])
        except ValueError:
            continue
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A record file that does not exist yet."""
    return tmp_path / "rank_0.jsonl"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every path lay on a network filesystem."""
    monkeypatch.setattr(signal_file, "on_network", lambda _: True)


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> "Iterator[threading.Event]":
    """Every write of the thread waits until the event is set, as on a server that does not answer."""
    go_on, real = threading.Event(), os.write

    def write(fd: int, data: bytes) -> int:
        if threading.current_thread().name == "drill-signals":
            assert go_on.wait(120)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    yield go_on
    go_on.set()


def test_a_killed_rank_loses_at_most_its_current_step(path: Path) -> None:
    """What `step` returned from has survived a SIGKILL."""
    code = HEAD + (
        "signals = Signals(Path(sys.argv[1]), 0)\n"
        "step = 0\n"
        "while True:\n"
        "    signals.step(step); os.write(1, b'%d\\n' % step); step += 1\n"
    )
    with subprocess.Popen((sys.executable, "-c", code, str(path)), stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        for _ in range(200):
            rank.stdout.readline()
        rank.kill()
        acknowledged = 200 + rank.stdout.read().count(b"\n")

    found = steps(path)
    assert found == list(range(len(found)))
    assert len(found) >= acknowledged


def test_a_file_size_limit_is_survived_and_glues_nothing(path: Path) -> None:
    """The record at the limit is torn; once there is room again, the next starts on its own line."""
    code = HEAD + (
        "signals = Signals(Path(sys.argv[1]), 0)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "for step in range(20): signals.step(step)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "for step in range(20, 25): signals.step(step)\n"
        "print(signals.lost)"
    )
    done = subprocess.run((sys.executable, "-c", code, str(path)), capture_output=True, text=True, check=True)

    found = steps(path)
    assert found[-5:] == [20, 21, 22, 23, 24]
    assert len(found) + int(done.stdout) == 25
    assert path.read_bytes().count(b"\n") == len(found) + 1
    assert "File too large" in done.stderr or "bytes were written" in done.stderr


def test_a_disk_that_is_full_and_then_not(tmp_path: Path) -> None:
    """A real small filesystem: what does not fit is counted, records go on when somebody makes room."""
    code = HEAD + (
        "folder = Path(sys.argv[1])\n"
        "signals = Signals(folder / 'rank_0.jsonl', 0)\n"
        "signals.step(0)\n"
        "ballast = open(folder / 'ballast', 'wb', buffering=0)\n"
        "try:\n"
        "    while True: ballast.write(b'x' * 512)\n"
        "except OSError: pass\n"
        "for step in range(1, 200): signals.step(step)\n"
        "full = signals.lost\n"
        "ballast.truncate(0)\n"
        "for step in range(200, 203): signals.step(step)\n"
        "print(full, signals.lost)\n"
        "sys.stdout.write((folder / 'rank_0.jsonl').read_text())\n"
    )
    mount = 'mount -t tmpfs -o size=64k none "$0" || exit 77; exec "$@"'
    command = ("unshare", "-m", "sh", "-c", mount, str(tmp_path), sys.executable, "-c", code, str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"may not mount: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr

    counts, _, content = done.stdout.partition("\n")
    full, lost = map(int, counts.split())
    (tmp_path / "copy").write_text(content)
    found = steps(tmp_path / "copy")
    assert full == lost > 0
    assert found[0] == 0
    assert found[-3:] == [200, 201, 202]
    assert len(found) + lost == 203


@pytest.mark.parametrize("end", [b'{"t":1.0,"step":0,"ra', b'{"t":1.0,"step":0,"rank":0}'])
def test_a_file_that_ends_inside_a_line(path: Path, end: bytes) -> None:
    """An earlier life was cut off: what it left stays, and the next record does not continue it."""
    path.write_bytes(end)
    with SignalFile(path) as file:
        file.write(b'{"t":2.0,"step":1}\n', preemptions())

    assert path.read_bytes() == end + b'\n{"t":2.0,"step":1}\n'


@pytest.mark.parametrize(
    ("cut", "expected", "lost"),
    [
        (0, b"BB\n", 1),
        (1, b"A\nBB\n", 1),
        (2, b"AA\nBB\n", 0),
    ],
)
def test_a_short_write_loses_what_it_cut(
    path: Path, monkeypatch: pytest.MonkeyPatch, cut: int, expected: bytes, lost: int
) -> None:
    """A record that lacks only its newline is whole."""
    real = os.write
    with SignalFile(path) as file:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda fd, data: real(fd, data[:cut]))
            file.write(b"AA\n", preemptions())
        file.write(b"BB\n", preemptions())

    assert path.read_bytes() == expected
    assert file.lost == lost


def test_a_closed_descriptor_never_hits_anothers_file(tmp_path: Path, path: Path) -> None:
    """Somebody closes all descriptors and opens a checkpoint: no record ends up in it; recording goes on."""
    with Signals(path, 0) as signals:
        signals.step(0)
        (ours,) = (fd for fd in range(4096) if _target(fd) == path)
        os.close(ours)
        others = [(tmp_path / f"checkpoint_{i}").open("wb") for i in range(50)]
        for step in range(1, 4):
            signals.step(step)
        for other in others:
            other.close()

    assert all((tmp_path / f"checkpoint_{i}").stat().st_size == 0 for i in range(50))
    assert steps(path) == [0, 2, 3]
    assert signals.lost == 1


def _target(fd: int) -> Path | None:
    link = Path(f"/proc/self/fd/{fd}")
    return link.readlink() if link.is_symlink() else None


def test_a_file_that_cannot_be_opened_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that comes back, seconds later, is written to."""
    now = [100.0]
    path.parent.joinpath("late").write_text("in the way")
    late = path.parent / "late" / "rank_0.jsonl"
    monkeypatch.setattr(signal_file.time, "perf_counter", lambda: now[0])
    with SignalFile(late) as file:
        file.write(b"1\n", preemptions())
        late.parent.unlink()
        file.write(b"2\n", preemptions())
        now[0] += 11
        file.write(b"3\n", preemptions())

    assert late.read_bytes() == b"3\n"
    assert file.lost == 2


def test_a_pipe_that_nobody_reads_does_not_block(path: Path) -> None:
    """Neither opening nor a full pipe holds the training."""
    os.mkfifo(path)
    signals = Signals(path, 0)
    signals.step(0)
    assert signals.lost == 1

    other = path.with_name("read.jsonl")
    os.mkfifo(other)
    reader = os.open(other, os.O_RDONLY | os.O_NONBLOCK)
    signals = Signals(other, 0)
    for step in range(2000):
        signals.step(step)
    os.close(reader)
    assert signals.lost > 0


@pytest.mark.usefixtures("network")
def test_steps_go_on_while_a_write_blocks(path: Path, blocked: threading.Event) -> None:
    """The loop ends although nothing was written; what does not fit is counted, the rest follows later."""
    count = 2 * QUEUE + 5000
    signals = Signals(path, 0)
    for step in range(count):
        signals.step(step)
    lost = signals.lost
    assert lost >= 5000
    assert not path.exists() or path.stat().st_size == 0

    blocked.set()
    signals.close()

    found = steps(path)
    # The thread takes a batch whenever it gets to run: what is lost before that need not be the last.
    assert found == sorted(set(found))
    assert found[0] == 0
    assert len(found) + lost == count == len(found) + signals.lost


@pytest.mark.usefixtures("network")
def test_opening_on_a_network_filesystem_does_not_hold_the_caller(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is made by the thread; records of the meantime are kept."""
    go_on, real = threading.Event(), Path.mkdir

    def mkdir(self: Path, *args: object, **kwargs: object) -> None:
        assert threading.current_thread().name == "drill-signals"
        assert go_on.wait(120)
        real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with Signals(path.parent / "deep" / "rank_0.jsonl", 0) as signals:
        signals.step(0)
        assert not (path.parent / "deep").exists()
        go_on.set()

    assert steps(path.parent / "deep" / "rank_0.jsonl") == [0]


def test_a_slow_write_hands_the_file_to_a_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Straight until then, without a thread; in order afterwards; nothing lost on the way."""
    with SignalFile(path) as file:
        file.write(b"0\n", preemptions())
        assert file.straight
        assert "drill-signals" not in {thread.name for thread in threading.enumerate()}
        monkeypatch.setattr(signal_file, "SLOW_S", -1.0)
        monkeypatch.setattr(signal_file, "STUCK_S", -1.0)
        file.write(b"1\n", preemptions())
        assert not file.straight
        for number in range(2, 500):
            file.write(b"%d\n" % number, preemptions())

    assert [int(line) for line in path.read_bytes().splitlines()] == list(range(500))
    assert file.lost == 0


def test_a_lost_core_is_no_slow_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that was preempted during the write keeps writing itself: a kill must not cost it records."""
    before = preemptions()
    with SignalFile(path) as file:
        monkeypatch.setattr(signal_file, "SLOW_S", -1.0)
        monkeypatch.setattr(signal_file, "preemptions", lambda: before + 1)
        file.write(b"0\n", before)

        assert file.straight


@pytest.mark.usefixtures("network")
def test_without_a_thread_to_be_had_the_caller_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may start no more threads still has records."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with Signals(path, 0) as signals:
        signals.step(0)

    assert steps(path) == [0]
    assert signals.lost == 0


@pytest.mark.usefixtures("network")
def test_closing_waits_for_a_blocked_thread_only_so_long(
    path: Path, blocked: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the thread still holds is counted."""
    monkeypatch.setattr(signal_file, "FLUSH_S", 0.01)
    signals = Signals(path, 0)
    for step in range(10):
        signals.step(step)
    signals.close()

    assert signals.lost == 10
    assert not blocked.is_set()


@pytest.mark.parametrize("server", ["answers", "hangs"])
def test_a_process_that_ends_without_closing_flushes(path: Path, server: str) -> None:
    """Records in the queue are written at exit; a server that hangs does not keep the process."""
    code = HEAD + (
        "from harness.worker import signal_file; import threading\n"
        "signal_file.on_network = lambda _: True\n"
        "real = os.write\n"
        f"os.write = lambda *a: threading.Event().wait() if {server == 'hangs'} else real(*a)\n"
        "signals = Signals(Path(sys.argv[1]), 0)\n"
        "for step in range(300): signals.step(step)\n"
    )
    done = subprocess.run(
        (sys.executable, "-c", code, str(path)), capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stderr == ""
    assert steps(path) == (list(range(300)) if server == "answers" else [])


@pytest.mark.parametrize("threaded", [False, True])
def test_a_forked_child_writes_nothing_and_raises_nothing(path: Path, threaded: bool) -> None:
    """A loader's worker inherits the writer, even with a queue that is full of the parent's records."""
    code = HEAD + (
        "from harness.worker import signal_file; import threading, atexit\n"
        f"signal_file.on_network = lambda _: {threaded}\n"
        "gate, real = threading.Event(), os.write\n"
        f"os.write = lambda *a: (gate.wait() if {threaded} else None, real(*a))[1]\n"
        "signals = Signals(Path(sys.argv[1]), 0)\n"
        "for step in range(5): signals.step(step)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    gate.set()\n"
        "    for step in range(100, 103): signals.step(step)\n"
        "    signals.close()\n"
        "    sys.exit(signals.lost)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
        "gate.set()\n"
        "for step in range(5, 10): signals.step(step)\n"
        "signals.close()\n"
        "assert signals.lost == 0\n"
    )
    done = subprocess.run((sys.executable, "-c", code, str(path)), capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert steps(path) == list(range(10))


@pytest.mark.parametrize("error", [errno.EIO, errno.EDQUOT, errno.ESTALE, errno.EPIPE, errno.EFBIG])
def test_any_error_of_a_write_is_counted(path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """One refused write is one lost record; the next is written."""
    with SignalFile(path) as file:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", _refuse(error))
            file.write(b"0\n", preemptions())
        file.write(b"1\n", preemptions())

    assert path.read_bytes() == b"1\n"
    assert file.lost == 1


def _refuse(error: int) -> Callable[[int, bytes], int]:
    def write(fd: int, data: bytes) -> int:
        raise OSError(error, os.strerror(error))

    return write
