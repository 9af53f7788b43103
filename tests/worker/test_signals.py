"""The per-step writer never disturbs training."""

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.worker import Signals
from harness.worker.signal_timing import TimedData

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.text(alphabet=st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF))
    | st.sampled_from(
        (10**400, -(2**63), object(), torch.tensor(1.5), torch.zeros(3), np.float32(2.0), {1, 2})
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
)


def records(path: Path) -> list[dict[str, object]]:
    """Every line, read by a strict parser: NaN and Infinity are not JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = path.read_bytes().decode()
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may be a rank himself."""
    for name in ("RANK", "TORCHELASTIC_RESTART_COUNT", "DRILL_SIGNALS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A record file that does not exist yet."""
    return tmp_path / "rank_3.jsonl"


def test_one_valid_line_a_step(path: Path) -> None:
    """Every record begins with time, step, rank and duration; what was measured follows."""
    signals = Signals(path, 3)
    signals.step(0, loss=float("nan"), grad_norm=float("-inf"), digest="a1", skipped=True, lr=None)
    signals.step(1, loss=2.5)

    first, second = records(path)
    assert list(first)[:4] == ["t", "step", "rank", "step_time_s"]
    assert (first["step"], first["rank"], first["loss"], first["grad_norm"]) == (0, 3, "NaN", "-Infinity")
    assert (first["digest"], first["skipped"], second["loss"]) == ("a1", True, 2.5)
    assert "lr" not in first


def test_open_takes_rank_and_attempt_from_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file a rank and attempt; a restarted one says in every record how many restarts came before."""
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    with Signals.open(tmp_path) as signals:
        signals.step(7)

    (record,) = records(tmp_path / "attempt_2" / "rank_5.jsonl")
    assert (record["rank"], record["restart_total"]) == (5, 2)


def test_a_lone_process_is_rank_0_of_attempt_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may come from DRILL_SIGNALS; a first attempt has no restarts to speak of."""
    monkeypatch.setenv("DRILL_SIGNALS", str(tmp_path))
    Signals.open().step(0)

    (record,) = records(tmp_path / "attempt_0" / "rank_0.jsonl")
    assert record["rank"] == 0
    assert "restart_total" not in record


def test_without_a_folder_it_is_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three lines may stay in the loop when nobody wants records."""
    monkeypatch.chdir(tmp_path)
    with Signals.open() as signals:
        for step, _ in enumerate(signals.data([1, 2])):
            signals.step(step, loss=1.0)

    assert list(tmp_path.iterdir()) == []
    assert signals.lost == 0


@given(
    st.dictionaries(st.text(), ANYTHING),
    st.integers() | st.floats() | st.none() | st.text() | st.just(torch.tensor(4)),
)
def test_whatever_is_passed_no_exception_and_valid_json(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, object], step: object
) -> None:
    """Any names, any values, any step: the record is valid or lost, and the next one is not touched."""
    path = tmp_path_factory.mktemp("signals") / "rank_1.jsonl"
    with Signals(path, 1) as signals:
        signals.step(step, **fields)
        signals.step(5)

    found = records(path)
    assert len(found) + signals.lost == 2
    assert all(list(record)[:4] == ["t", "step", "rank", "step_time_s"] for record in found)
    assert (found[-1]["step"], found[-1]["rank"]) == (5, 1)


@pytest.mark.parametrize(("given", "lost"), [(None, 0), (object(), 1), ([], 1), (torch.zeros(3), 1)])
def test_a_step_time_without_a_json_form_does_not_erase_the_measured_one(
    path: Path, given: object, lost: int
) -> None:
    """A trainer that passes its own step time may have none yet."""
    with Signals(path, 3) as signals:
        signals.step(0, step_time_s=given)
        signals.step(1, step_time_s=0.25)

    first, second = records(path)
    assert isinstance(first["step_time_s"], float)
    assert second["step_time_s"] == 0.25
    assert signals.lost_fields == lost


def test_circular_and_hostile_objects_are_counted(path: Path) -> None:
    """Nothing of the object's own code can stop the training."""

    class Hostile(float):
        def __float__(self) -> float:
            raise RuntimeError

        __repr__ = __str__ = __eq__ = __float__  # type: ignore[assignment]
        __hash__ = None  # type: ignore[assignment]

    circle: list[object] = []
    circle.append(circle)
    signals = Signals(path, 0)
    signals.step(0, a=circle, b=Hostile(1.5), c=object(), d="x" * 10**6, self=1)

    (record,) = records(path)
    assert (record["b"], record["self"]) == (1.5, 1)
    assert (signals.lost, signals.lost_fields) == (0, 3)


def test_a_record_that_would_be_megabytes_is_lost(path: Path) -> None:
    """A record is one small write."""
    signals = Signals(path, 0)
    signals.step(0, **{f"expert_{i}": i for i in range(10000)})
    signals.step(1)

    assert [record["step"] for record in records(path)] == [1]
    assert signals.lost == 1


def test_names_of_the_record_itself_cannot_be_taken(path: Path) -> None:
    """A field called rank or t would make it another rank's record."""
    signals = Signals(path, 3)
    signals.step(0, rank=9, t=0.0)
    signals.step(step=4)
    signals.step()

    assert [(record["rank"], record["step"]) for record in records(path)] == [(3, 0), (3, 4), (3, 5)]
    assert signals.lost_fields == 2


def test_a_restart_appends(path: Path) -> None:
    """Nothing is ever truncated."""
    for _ in range(2):
        Signals(path, 0).step(0)

    assert len(records(path)) == 2


@pytest.mark.parametrize("path", ["/dev/full", "/proc/nowhere/rank_0.jsonl", "/tmp", "/dev/null/x", "a\0b"])
def test_a_path_that_refuses_is_counted_and_told_once(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Training goes on; `lost` says how much is missing, and one line says why."""
    signals = Signals(Path(path), 0)
    for step in range(3):
        signals.step(step)

    assert signals.lost == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("folder", [3, object(), b"/dev/null"])
def test_a_folder_of_the_wrong_type_is_told(folder: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even a wrong argument ends the training."""
    signals = Signals.open(folder)  # type: ignore[arg-type]
    signals.step(0)

    assert "not all are on record" in capsys.readouterr().err


def test_step_time_does_not_follow_the_clock_on_the_wall(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is set back by a day makes no step negative."""
    signals = Signals(path, 0)
    signals.step(0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 86400)
    signals.step(1)

    first, second = records(path)
    assert second["t"] < first["t"]  # type: ignore[operator]
    assert second["step_time_s"] >= 0  # type: ignore[operator]


def test_timed_blocks_add_up_and_begin_anew(path: Path) -> None:
    """Two saves in one step are one duration; the next step has none."""
    signals = Signals(path, 0)
    spent = []
    for _ in range(2):
        begun = time.perf_counter()
        with signals.timed("ckpt_duration_s"):
            sum(range(200_000))
        spent.append(time.perf_counter() - begun)
    signals.step(0)
    signals.step(1)

    first, second = records(path)
    assert max(spent) / 2 < first["ckpt_duration_s"] <= sum(spent)  # type: ignore[operator]
    assert "ckpt_duration_s" not in second


def test_an_exception_passes_through_a_timed_block(path: Path) -> None:
    """The same object, and the time until it was raised is on record."""
    signals = Signals(path, 0)
    error = StopIteration("mine")
    with pytest.raises(StopIteration) as raised, signals.timed("ckpt_duration_s"):
        raise error
    signals.step(0)

    assert raised.value is error
    assert "ckpt_duration_s" in records(path)[0]


@pytest.mark.parametrize("name", [None, 3, [], "rank"])
def test_a_timer_without_a_proper_name_is_counted(path: Path, name: object) -> None:
    """The block runs; its time is lost."""
    signals = Signals(path, 3)
    with signals.timed(name):  # type: ignore[arg-type]
        pass
    signals.step(0)

    assert records(path)[0]["rank"] == 3
    assert signals.lost_fields == 1


def test_waits_for_data_are_timed(path: Path) -> None:
    """The time in the loader, with its start, is data_wait_s; the rest of the step is not."""
    inside: list[float] = []

    class Loader:
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[int]:
            for i in range(3):
                begun = time.perf_counter()
                sum(range(300_000))
                inside.append(time.perf_counter() - begun)
                yield i

    signals = Signals(path, 0)
    loader = signals.data(Loader())
    assert len(loader) == 3
    for _ in range(2):
        for batch in loader:
            signals.step(batch)

    waits = [record["data_wait_s"] for record in records(path)]
    assert len(waits) == 6
    assert all(wait >= own for wait, own in zip(waits, inside, strict=True))  # type: ignore[operator]
    assert all(r["data_wait_s"] <= r["step_time_s"] for r in records(path))  # type: ignore[operator]


def test_data_of_an_iterator_is_an_iterator(path: Path) -> None:
    """`next` works as on what was wrapped, and ends as it does."""
    data: TimedData[int] = Signals(path, 0).data(iter([1, 2, 3]))

    assert next(data) == 1
    assert list(data) == [2, 3]
    with pytest.raises(StopIteration):
        next(data)


def test_an_exception_of_the_loader_passes_through(path: Path) -> None:
    """A bad sample is the training's business."""
    error = ValueError("bad sample")

    def loader() -> Iterator[int]:
        yield 1
        raise error

    with pytest.raises(ValueError, match="bad sample") as raised:
        list(Signals(path, 0).data(loader()))
    assert raised.value is error


def test_cpu_time_of_the_calling_thread(path: Path) -> None:
    """What the step computed counts, what it waited does not; a step that changes threads has neither."""
    signals = Signals(path, 0)
    begun = time.thread_time()
    sum(range(1_000_000))
    spent = time.thread_time() - begun
    signals.step(0)
    threading.Event().wait(0.05)
    signals.step(1)
    other = threading.Thread(target=signals.step, args=(2,))
    other.start()
    other.join()

    busy, idle, moved = records(path)
    assert busy["cpu_s"] >= spent  # type: ignore[operator]
    assert idle["cpu_s"] < 0.05 <= idle["step_time_s"]  # type: ignore[operator]
    assert isinstance(busy["preemptions"], int)
    assert "cpu_s" not in moved
    assert "preemptions" not in moved


def test_memory_is_recorded_unless_declined(tmp_path: Path) -> None:
    """By default a record has the memory of the process."""
    for rank, memory in enumerate((True, False)):
        Signals.open(tmp_path, rank=rank, memory=memory).step(0)

    with_memory, without = (records(tmp_path / "attempt_0" / f"rank_{rank}.jsonl")[0] for rank in range(2))
    assert with_memory["rss_bytes"] > 0  # type: ignore[operator]
    assert "rss_bytes" not in without


def test_a_device_in_trouble_does_not_cost_the_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that shows the failure is the one that is needed."""
    signals = Signals(path, 0)

    def fails(*_: object) -> None:
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(signals._memory, "add", fails)
    signals.step(0, loss=1.0)

    assert records(path)[0]["loss"] == 1.0
    assert signals.lost == 0


def test_a_copy_is_inert(path: Path) -> None:
    """A dataset that holds the writer can be sent to a loader's worker, which then writes nothing."""
    signals = Signals(path, 0)
    pickle.loads(pickle.dumps(signals)).step(0)
    signals.step(1)

    assert [record["step"] for record in records(path)] == [1]


def test_after_close_nothing_is_written(path: Path) -> None:
    """Closing twice is fine; a late step is counted."""
    signals = Signals(path, 0)
    signals.step(0)
    signals.close()
    signals.close()
    signals.step(1)

    assert len(records(path)) == 1
    assert signals.lost == 1


def test_works_without_torch(tmp_path: Path) -> None:
    """Importing the writer and recording with it imports no torch."""
    code = (
        "import sys; from harness.worker import Signals\n"
        "signals = Signals.open(sys.argv[1]); signals.step(0, loss=1.0); signals.close()\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run((sys.executable, "-c", code, str(tmp_path)), check=True, env={**os.environ, "RANK": "0"})

    assert records(tmp_path / "attempt_0" / "rank_0.jsonl")[0]["loss"] == 1.0


def test_the_page_is_true(tmp_path: Path) -> None:
    """The script of docs/signals.md runs as it stands and records the fields that the page shows."""
    page = (Path(__file__).parents[2] / "docs" / "signals.md").read_text()
    script = page.split("```python\n")[1].split("```")[0]
    shown = [json.loads(row) for row in page.splitlines() if row.startswith('{"t"')]
    with (tmp_path / "out.log").open("w") as log:
        subprocess.run((sys.executable, "-c", script), cwd=tmp_path, stdout=log, stderr=log, check=True)

    found = records(tmp_path / "signals" / "attempt_0" / "rank_0.jsonl")
    paced = {name for name in set().union(*found, *shown) if name.startswith(("mem_", "rss_", "stdout_"))}
    assert len(found) == len(shown) == 3
    assert [set(record) - paced for record in found] == [set(record) - paced for record in shown]
