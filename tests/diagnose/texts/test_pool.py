"""Working on many files."""

import os
import signal
from pathlib import Path

import pytest

from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.pool import each_file

FILES = [TextFile(f"{i}.log", Path(f"/nowhere/{i}"), "text", (i * 7 % 5) << 22) for i in range(20)]


def no_loss(file: TextFile, why: str) -> str:
    raise AssertionError(f"{file.name}: {why}")


@pytest.mark.parametrize("workers", [1, 3])
def test_results_are_in_the_order_of_the_files(workers: int) -> None:
    """Whoever did the work, and whatever came first; progress ends at the end."""
    seen: list[tuple[int, int]] = []

    found = each_file(FILES, lambda f: f.name, no_loss, lambda *at: seen.append(at), workers)

    assert found == [file.name for file in FILES]
    assert seen[-1] == (20, 20)


def test_small_files_are_read_in_this_process() -> None:
    """Starting others costs more."""
    assert each_file(FILES[:1], lambda _: os.getpid(), lambda *_: 0) == [os.getpid()]


def test_large_files_are_read_in_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are cores for."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    assert os.getpid() not in each_file(FILES, lambda _: os.getpid(), lambda *_: 0)


def test_a_process_that_dies_costs_its_file_only() -> None:
    """The files of the others, which die with it, are read again."""

    def work(file: TextFile) -> str:
        if file.name == "13.log":
            os.kill(os.getpid(), signal.SIGKILL)
        return file.name

    found = each_file(FILES, work, lambda file, why: f"{file.name}: {why}", workers=2)

    assert [name for name in found if ":" in name] == [
        "13.log: the process that read it died (out of memory?)"
    ]
    assert [name.partition(":")[0] for name in found] == [file.name for file in FILES]


def test_no_files_are_no_work() -> None:
    """Nothing given, nothing back."""
    assert each_file([], lambda f: f.name, no_loss) == []


def test_spans_are_read_in_this_process() -> None:
    """Whatever is done to the others: a forked process would wait for polars' threads for ever."""
    files = [*FILES, TextFile("x.jsonl", Path("/nowhere/x"), "spans", 1 << 30)]

    found = each_file(files, lambda _: os.getpid(), lambda *_: 0, workers=2)

    assert [pid == os.getpid() for pid in found] == [False] * len(FILES) + [True]
