"""From a collective's timeout to a file of every rank, on lines as torch's watchdog words them."""

import os
import pickle
import time
from pathlib import Path

import pytest

from harness.diagnose.logs.chain import read_chain
from harness.model.chain import LINKS, WatchdogChain

WORLD = 4
DAY = (2026, 8, 10)
BEGAN = time.mktime((*DAY, 3, 4, 10, 0, 0, -1))
"""When the first watchdog spoke."""

DUMP = pickle.dumps({"version": "2.10", "entries": [{"record_id": 1, "state": "scheduled"}]})


def line(rank: int, at: float, message: str, level: str = "E", where: str = "2573") -> str:
    """A line of rank N, `at` seconds after the first one."""
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(BEGAN + int(at)))
    nanoseconds = f"{round(at % 1 * 1e9):09d}"
    tag = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    return f"[rank{rank}]:[{level}{stamp}.{nanoseconds} ProcessGroupNCCL.cpp:{where}] {tag} {message}\n"


def times_out(rank: int, at: float) -> str:
    work = "WorkNCCL(SeqNum=78, OpType=BROADCAST, NumelIn=80, NumelOut=80, Timeout(ms)=15000)"
    ran = f"ran for {15000 + round(at * 1000) + 87} milliseconds before timing out."
    return line(rank, at, f"Watchdog caught collective operation timeout: {work} {ran}")


def initiates(rank: int, at: float) -> str:
    """A rank whose own watchdog fires."""
    received = "Received a dump signal due to a collective timeout from this local rank and we will"
    return (
        times_out(rank, at)
        + line(rank, at + 0.01, "First PG on this rank to signal dumping.")
        + line(rank, at + 0.02, "Broadcasting signal exception_dump to other ranks via TCPStore.", "I")
        + line(rank, at + 0.1, f"{received} try our best. Last enqueued NCCL work: 79.")
        + dumps(rank, at + 0.12)
    )


def observes(rank: int, at: float, source: int) -> str:
    """A rank that the signal reaches through the store."""
    return (
        line(rank, at, "Observed flight recorder dump signal from another rank via TCPStore.")
        + line(
            rank, at, f"Received a dump signal due to a collective timeout from  rank {source} and we will"
        )
        + dumps(rank, at + 0.02)
    )


def dumps(rank: int, at: float) -> str:
    return (
        line(rank, at, "ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1")
        + line(rank, at + 0.01, f"ProcessGroupNCCL dumping nccl trace to /b/flight_recorder/rank_{rank}", "I")
        + line(rank, at + 0.05, "Finished flight recorder successfully. Output can be analyzed", "I")
    )


def chain(folder: Path, logs: dict[int, str], written: dict[int, float], world: int = WORLD) -> WatchdogChain:
    """The chain of an attempt with these logs, and dumps written so many seconds after the beginning."""
    log_files, dump_files = {}, {rank: folder / f"rank_{rank}" for rank in range(world)}
    for rank, text in logs.items():
        log_files[rank] = folder / f"{rank}.log"
        log_files[rank].write_text(f"step 7 done\n{text}[rank{rank}]: something else\n")
        os.utime(log_files[rank], (BEGAN + 60, BEGAN + 60))
    for rank, at in written.items():
        dump_files[rank].write_bytes(DUMP)
        os.utime(dump_files[rank], (BEGAN + at, BEGAN + at))
    return read_chain(log_files, dump_files, world)


WHOLE = {2: initiates(2, 0.0), 0: initiates(0, 0.4), 1: observes(1, 0.6, 2), 3: observes(3, 0.7, 2)}
FILES = {0: 0.9, 1: 1.0, 2: 0.5, 3: 1.5}


def test_a_whole_chain_says_who_was_first_and_how_long_each_link_took(tmp_path: Path) -> None:
    """Timeout, first signal, store, monitor threads, files: all there, each with its time."""
    found = chain(tmp_path, WHOLE, FILES)

    assert found.whole
    assert tuple(found.links) == LINKS
    assert (found.first, found.initiators, found.observers) == (2, "0,2", "1,3")
    took = {name: link.took_s for name, link in found.links.items()}
    assert took == pytest.approx(
        {"timeout": 0.087, "first_signal": 0.01, "store_signal": 0.69, "monitor_thread": 0.0, "files": 1.49}
    )
    assert found.broken == ()


def test_a_rank_that_the_signal_never_reached_is_named(tmp_path: Path) -> None:
    """No word and no file of rank 3: the store's link breaks there, and with it the file."""
    found = chain(tmp_path, {r: t for r, t in WHOLE.items() if r != 3}, {0: 0.9, 1: 1.0, 2: 0.5})

    assert not found.whole
    assert [name for name in LINKS if not found.links[name].ok] == ["store_signal", "monitor_thread", "files"]
    assert {found.links[n].missing for n in ("store_signal", "monitor_thread", "files")} == {"3"}
    assert found.broken[0] == "store_signal: rank 3 not told of the signal"


def test_a_monitor_thread_that_heard_and_wrote_nothing(tmp_path: Path) -> None:
    """The signal arrived everywhere and one file is damaged: only the last link breaks, with the reason."""
    written = dict(FILES)
    del written[1]
    (tmp_path / "rank_1").write_bytes(DUMP[:20])
    found = chain(tmp_path, WHOLE, written)

    assert [name for name in LINKS if not found.links[name].ok] == ["files"]
    assert found.broken[0].startswith("files: no readable file of rank 1 (rank 1: ")


def test_nothing_timed_out(tmp_path: Path) -> None:
    """Logs of a healthy job: every link says that it did not happen, and nobody is first."""
    found = chain(tmp_path, dict.fromkeys(range(WORLD), ""), {})

    assert not any(link.ok for link in found.links.values())
    assert found.first is None
    assert found.links["timeout"].says == "no rank's watchdog saw a collective time out"


def test_without_info_lines_the_files_prove_the_monitor_threads(tmp_path: Path) -> None:
    """A job's own log level hides who writes where: a file of a rank that was told is proof enough."""
    quiet = {
        rank: "".join(
            part
            for part in text.splitlines(keepends=True)
            if "]:[I" not in part and "preparing" not in part and "Received" not in part
        )
        for rank, text in WHOLE.items()
    }
    found = chain(tmp_path, quiet, FILES)

    assert found.whole
    assert found.links["monitor_thread"].took_s is None


def test_without_clocks_the_named_rank_is_the_first(tmp_path: Path) -> None:
    """Lines whose prefix was stripped: who was first is what the observers were told."""
    bare = {
        rank: "".join(p.split("] ", 1)[-1] for p in t.splitlines(keepends=True)) for rank, t in WHOLE.items()
    }
    found = chain(tmp_path, bare, FILES)

    assert found.first == 2
    assert found.links["store_signal"].took_s is None
    assert found.whole


def test_the_year_turns(tmp_path: Path) -> None:
    """glog writes no year: a chain in the last second of December is not a year away from its files."""
    turn = time.mktime((2026, 12, 31, 23, 59, 59, 0, 0, -1))
    log, dump = tmp_path / "0.log", tmp_path / "rank_0"
    said = (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=1000)"
    )
    log.write_text(
        f"[rank0]:[E1231 23:59:59.900000000 ProcessGroupNCCL.cpp:1] {said} ran for 1009 milliseconds before\n"
        "[rank0]:[E0101 00:00:00.100000000 ProcessGroupNCCL.cpp:1] First PG on this rank to signal dumping.\n"
    )
    dump.write_bytes(DUMP)
    for path in (log, dump):
        os.utime(path, (turn + 2, turn + 2))
    found = read_chain({0: log}, {0: dump}, 1)

    assert found.links["first_signal"].took_s == pytest.approx(0.2)
    assert found.links["files"].took_s == pytest.approx(0.9)
