"""One timeline over all files: ordered, each entry with its line, of a class only the first few."""

from pathlib import Path

import pytest

from harness.diagnose.logs.room import LogsResult, analyse_logs
from harness.diagnose.logs.timeline import MAX_ENTRIES, PER_CLASS
from tests.diagnose.logs.cases.writing import write


def read(folder: Path, files: dict[str, str], world: int | None = 8) -> LogsResult:
    return analyse_logs([write({n: t.encode() for n, t in files.items()}, folder)], world)


def at(minute: int, second: int, text: str) -> str:
    return f"2026-08-08 03:{minute:02}:{second:02},000 {text}\n"


def timeout(r: int, ran_ms: int = 600000, minute: int = 20) -> str:
    return at(
        minute,
        r,
        f"[rank{r}]: [PG ID 0 PG GUID 0(default_pg) Rank {r}] Watchdog caught collective "
        "operation timeout: WorkNCCL("
        "SeqNum=1371, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for "
        f"{ran_ms} milliseconds "
        "before timing out.",
    )


def test_entries_are_in_the_order_of_time(tmp_path: Path) -> None:
    """Not in that of files or lines."""
    hello = "2026-08-08 03:00:00,000 node-0:42:99 [0] NCCL INFO hello\n"
    files = {"a.log": hello + timeout(0), "b.log": hello + at(9, 0, "[rank1]: KeyError: 'loss'")}

    entries = read(tmp_path, files).timeline

    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert entries[0].file == "b.log"


def test_the_wait_begins_at_its_timeout_minus_what_it_ran(tmp_path: Path) -> None:
    """Ten minutes before the first timeout."""
    entries = read(tmp_path, {"job.log": timeout(0) + timeout(1)}).timeline

    begins, times_out = entries[0], entries[1]
    assert "begins to wait" in begins.what
    assert times_out.at - begins.at == pytest.approx(600.0)
    assert (begins.file, begins.line) == ("job.log", 1)


def test_a_suspended_process_tells_no_beginning(tmp_path: Path) -> None:
    """It ran for an hour with a limit of ten minutes."""
    entries = read(tmp_path, {"job.log": timeout(0, 3600000) + timeout(1, 3600000)}).timeline

    assert not any("begins to wait" in entry.what for entry in entries)


def test_of_a_class_only_the_first_few(tmp_path: Path) -> None:
    """Eight ranks time out: the first three, and those that the verdict cites."""
    entries = read(tmp_path, {"job.log": "".join(timeout(r) for r in range(8))}).timeline

    assert sum(entry.what.startswith("times out") for entry in entries) == PER_CLASS


def test_only_the_last_step_is_in_it(tmp_path: Path) -> None:
    """The others are ordinary."""
    text = "".join(at(m, 0, f"[rank0]: step: {m}0  loss:  2.1") for m in range(10)) + timeout(0)

    entries = read(tmp_path, {"job.log": text}).timeline

    assert [entry.what for entry in entries if "step: " in entry.what] == [
        "last step heard of: step: 90  loss:  2.1"
    ]


def test_a_cited_line_is_in_it(tmp_path: Path) -> None:
    """However many of its class came before."""
    handled = "".join(
        at(1, s, "[rank0]: Traceback (most recent call last):")
        + at(1, s, f"[rank0]: ValueError: handled {s}")
        + at(1, s, f"[rank0]: step: {s}  loss:  2.1")
        for s in range(9)
    )
    cause = at(2, 0, "[rank5]: Traceback (most recent call last):") + at(2, 0, "[rank5]: KeyError: 'loss'")

    result = read(tmp_path, {"job.log": handled + cause})

    assert result.finding is not None
    assert result.finding.culprits == (5,)
    assert any(entry.rank == 5 and "KeyError" in entry.what for entry in result.timeline)


def test_lines_without_times_are_not_placed(tmp_path: Path) -> None:
    """A guess would be a false order."""
    assert read(tmp_path, {"job.log": "[rank0]: KeyError: 'loss'\n"}).timeline == ()


def test_it_stays_short(tmp_path: Path) -> None:
    """A flood of many kinds is cut."""
    text = "".join(
        at(m, s, line)
        for m in range(20)
        for s, line in enumerate(
            (
                f"[rank{m % 8}]: KeyError: 'loss {m}'",
                f"srun: error: node-{m}: task {m}: Killed",
                f"[rank{m % 8}]: GET x: retrying 1/5",
                f"slurmstepd: error: Detected 1 oom_kill event in StepId=1.{m}.",
                "[rank1]: Running validation",
                "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered",
            )
        )
    )

    assert 5 < len(read(tmp_path, {"job.log": text}).timeline) <= MAX_ENTRIES
