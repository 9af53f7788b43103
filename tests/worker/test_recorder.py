"""Dumps of a real rank's recorder: by SIGTERM inside gloo, by pipe, by exception."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.bundle.layout import Layout

pytestmark = pytest.mark.ranks

RANK = """
import os, sys, torch, torch.distributed as dist
from harness.worker import Session
with Session.join() as session:
    x = torch.ones(4)
    dist.all_reduce(x)
    if session.rank == 1:
        sys.stdin.read()          # never joins the second one
        if os.environ.get("RAISE"): raise ValueError("bad sample")
    dist.all_reduce(x)
"""


@pytest.fixture
def ranks(tmp_path: Path, request: pytest.FixtureRequest) -> "Iterator[list[subprocess.Popen[bytes]]]":
    """Two ranks; rank 0 waits inside gloo for rank 1, which reads its standard input."""
    layout = Layout(tmp_path)
    layout.live.mkdir()
    store = tmp_path / "store"
    patch = (
        "import torch.distributed as d; init = d.init_process_group\n"
        f"d.init_process_group = lambda b, **k: init(b, init_method='file://{store}', "
        "rank=int(os.environ['RANK']), world_size=2, **k)\n"
    )
    processes = []
    for rank in range(2):
        env = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "DRILL_BUNDLE": str(tmp_path),
            "TORCH_FR_DUMP_TEMP_FILE": str(layout.dump_prefix(0)),
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(layout.pipe_prefix),
            "GLOO_SOCKET_IFNAME": "lo",
            **getattr(request, "param", {}),
        }
        processes.append(
            subprocess.Popen(
                (sys.executable, "-c", "import os\n" + patch + RANK),
                env=env,
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
    _wait(lambda: '"joined": 1' in _text(layout.registration(0, 0)))
    time.sleep(0.3)
    yield processes
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.kill()
        process.wait()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _wait(condition: object, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _entries(path: Path) -> list[dict[str, object]]:
    entries = pickle.loads(path.read_bytes())["entries"]
    assert isinstance(entries, list)
    return entries


def test_sigterm_inside_gloo_dumps_and_ends_by_the_signal(
    tmp_path: Path, ranks: "list[subprocess.Popen[bytes]]"
) -> None:
    """Python's handlers do not run while the main thread waits inside gloo; the dump is taken anyway."""
    ranks[0].send_signal(signal.SIGTERM)

    assert ranks[0].wait(timeout=10) == -signal.SIGTERM
    last = _entries(Layout(tmp_path).dump(0, 0))[-1]
    assert (last["profiling_name"], last["collective_seq_id"]) == ("gloo:all_reduce", 2)
    assert last["frames"]


def test_a_byte_into_the_pipe_dumps_without_stopping(
    tmp_path: Path, ranks: "list[subprocess.Popen[bytes]]"
) -> None:
    """The interface that NCCL has, on gloo: each byte writes the dump anew, the rank goes on."""
    layout = Layout(tmp_path)
    for _ in range(2):
        layout.dump(0, 0).unlink(missing_ok=True)
        layout.pipe(0).write_bytes(b"1")
        _wait(layout.dump(0, 0).exists)
    assert len(_entries(layout.dump(0, 0))) == 2

    assert ranks[1].stdin is not None
    ranks[1].stdin.close()

    assert [process.wait(timeout=10) for process in ranks] == [0, 0]
    assert not layout.pipe(0).exists()


@pytest.mark.parametrize("ranks", [{"RAISE": "1"}], indirect=True)
def test_an_uncaught_exception_dumps(tmp_path: Path, ranks: "list[subprocess.Popen[bytes]]") -> None:
    """The rank that raises and the peer that loses it both leave a dump."""
    assert ranks[1].stdin is not None
    ranks[1].stdin.close()

    assert [process.wait(timeout=20) for process in ranks] == [1, 1]
    assert len(_entries(Layout(tmp_path).dump(0, 1))) == 1
    assert len(_entries(Layout(tmp_path).dump(0, 0))) == 2
