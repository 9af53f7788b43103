"""Waiting for files that ranks write by themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.model.errors import Interrupted
from harness.observe.watchdogs import await_watchdogs

WRITES = "import sys, time; time.sleep(float(sys.argv[1])); open(sys.argv[2], 'w').write('dump'); input()"


def test_every_file_there_ends_the_wait(tmp_path: Path) -> None:
    """Two real processes, one of which takes its time; nobody is reported."""
    files = {rank: tmp_path / f"rank_{rank}" for rank in range(2)}
    ranks = {
        rank: subprocess.Popen(
            (sys.executable, "-c", WRITES, str(rank * 0.3), str(files[rank])), stdin=subprocess.PIPE
        )
        for rank in range(2)
    }
    try:
        silent = await_watchdogs(files, {r: p.pid for r, p in ranks.items()}, limit_s=20)
    finally:
        for process in ranks.values():
            process.communicate(b"\n")

    assert silent == {}


def test_who_wrote_nothing_and_why(tmp_path: Path) -> None:
    """One ended, one still lives and is silent; each with its reason. One whose file is there is neither."""
    files = {rank: tmp_path / f"rank_{rank}" for rank in range(3)}
    files[2].write_text("dump")
    ended = subprocess.Popen(("true",))
    ended.wait()
    silent = await_watchdogs(files, {0: ended.pid, 1: os.getpid(), 2: ended.pid}, limit_s=0.3)

    assert silent == {"ended before its watchdog wrote it": [0], "its watchdog wrote nothing within 0 s": [1]}


def test_an_interruption_ends_the_wait(tmp_path: Path) -> None:
    """Ctrl-C is heeded between looks."""

    def stop() -> None:
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        await_watchdogs({0: tmp_path / "rank_0"}, {0: os.getpid()}, 60, stop)
