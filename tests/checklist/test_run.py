"""Running a checklist: every outcome, what is kept when it is cut short, and what bad commands come to."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from harness.checklist import surroundings
from harness.checklist.run import exit_code
from harness.checklist.steps import plan_of
from harness.checklist.store import Store
from harness.checklist.surroundings import Surroundings
from harness.model.checklist import ItemOutcome
from harness.model.errors import PrerequisiteError, UsageError
from tests.checklist.made import BAD, GOOD, NO_JOB, PERSON, StopAfter, checklist, item, prints, run
from tests.conftest import heed_signals


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    return Store(tmp_path / "results")


def says(*lines: str) -> str:
    """A step that prints these lines."""
    return json.dumps({"command": ["printf", r"%s\n", *lines], "pass": "rate >= 0.95"})


@pytest.mark.parametrize(
    ("step", "outcome", "said", "code"),
    [
        (prints({"rate": 0.98}, "rate >= 0.95"), "pass", "rate 0.98", 0),
        (prints({"rate": 0.5}, "rate >= 0.95"), "fail", "rate 0.5; wanted: rate >= 0.95", 1),
        (prints({"rate": None}, "rate >= 0.95"), "inconclusive", "rate, which was not measured", 3),
        (prints({"other": 1}, "rate >= 0.95"), "inconclusive", "rate, which was not measured", 3),
        (prints({"rate": "NaN"}, "rate >= 0.95"), "inconclusive", "not supported", 3),
        (prints({"rate": 0.99}, "rate >= 0.95", code=1), "inconclusive", "ended with code 1", 3),
        (prints({}, "rate >= 0.95", code=4), "not_run", "", 4),
        ('{command: [no-such-program], pass: "rate > 1"}', "not_run", "No such file", 4),
        ('{command: ["true"], pass: "rate > 1"}', "inconclusive", "printed no JSON object", 3),
        ('{command: [echo, "{broken"], pass: "rate > 1"}', "inconclusive", "printed no JSON object", 3),
        ('{command: [sleep, "60"], pass: "rate > 1", timeout: 0.3s}', "inconclusive", "within 0.3 s", 3),
        (says('{"rate": 1}', '{"rate": 0.2, "er'), "inconclusive", "printed no JSON object", 3),
        (says('{"rate": Infinity}'), "inconclusive", "rate is inf, which is no measurement", 3),
        (says('{"rate": ' + "9" * 400 + "}"), "inconclusive", "no measurement", 3),
        (says('{"rate": 2, "host": "\\ud800"}'), "pass", "rate 2", 0),
        (
            '{command: [sh, -c, "rm -r $DRILL_PROBE_OUT"], pass: "rate > 1"}',
            "inconclusive",
            "no JSON object",
            3,
        ),
        (
            "{manual: looked, files: [{path: runbook.md, newer_than: /proc/self/stat*}]}",
            "fail",
            "no runbook",
            1,
        ),
    ],
)
def test_every_outcome_of_a_step(
    tmp_path: Path, store: Store, step: str, outcome: str, said: str, code: int
) -> None:
    """What could not run, or could not decide, is never a pass."""
    made = checklist(tmp_path, item("one", step))

    finished = run(made, store)

    (result,) = finished.run.items
    assert (result.outcome.value, exit_code(made, finished.run)) == (outcome, code), result
    assert said in result.why
    assert finished.run.complete


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{drill: no_such_drill}", "drill no_such_drill: no drill is called"),
        (
            "{drill: fr_hang, mode: no_such_mode}",
            "drill fr_hang: --mode no_such_mode: fr_hang has no such mode",
        ),
        ("{drill: fr_hang, culprit: 99}", "drill fr_hang: --culprit 99: outside the world"),
        ("{drill: fr_hang, set: {no_such: 1}}", "drill fr_hang: --set no_such"),
    ],
)
def test_a_drill_that_does_not_exist_is_said_before_anything_runs(
    tmp_path: Path, store: Store, step: str, said: str
) -> None:
    """With file and line, as every other mistake in the file; nothing is stored."""
    made = checklist(tmp_path, GOOD, item("one", step))

    with pytest.raises(UsageError, match=r"mine\.yaml:16: ") as error:
        run(made, store)

    assert said in str(error.value)
    assert not store.chain().entries


def test_the_worst_step_is_the_items_outcome(tmp_path: Path, store: Store) -> None:
    """All steps run, so that all evidence is there; the failed one decides."""
    good, bad = prints({"a": 1}, "a == 1"), prints({"a": 2}, "a == 1")
    made = checklist(tmp_path, item("one", good, bad, good))

    (result,) = run(made, store).run.items

    assert [step.outcome.value for step in result.steps] == ["pass", "fail", "pass"]
    assert result.outcome is ItemOutcome.FAIL


def test_without_gpus_it_is_rehearsed_and_says_so(tmp_path: Path, store: Store) -> None:
    """The rehearsal's own criterion counts, and the outcome is never a pass; without one it is not run."""
    step = json.loads(prints({"rate": 0.5}, "rate >= 0.95"))
    rehearsed = json.dumps({**step, "rehearsal": {"pass": "rate >= 0.4"}})
    made = checklist(
        tmp_path, item("one", rehearsed, needs="gpu"), item("two", json.dumps(step), needs="gpus")
    )

    one, two = run(made, store).run.items

    assert (one.outcome, two.outcome) == (ItemOutcome.REHEARSED, ItemOutcome.NOT_RUN)
    assert "two GPUs" in two.why


def test_what_is_meant_for_cards_is_not_measured_on_cores(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver is there and torch cannot use it: a probe is not run, a drill that fell back is rehearsed."""
    monkeypatch.setattr(surroundings, "gpu_count", lambda: 8)
    probe = "{probe: memory, with: {mib: 1, rounds: 1}, pass: errors == 0}"
    drill = "{drill: control, set: {steps: 3}}"
    made = checklist(tmp_path, item("one", probe, needs="gpu"), item("two", drill, needs="gpu"))

    one, two = run(made, store).run.items

    assert (one.outcome, two.outcome) == (ItemOutcome.NOT_RUN, ItemOutcome.REHEARSED)
    assert "torch 2." in one.why
    assert "can use 0, of 1 that are needed" in one.why


def test_a_drill_that_knows_one_back_end_does_not_stop_the_others(tmp_path: Path, store: Store) -> None:
    """``--backend nccl`` is for those that have it."""
    made = checklist(tmp_path, item("one", "{drill: page}"))

    with Surroundings.open(NO_JOB, store.folder, backend="nccl") as around:
        assert plan_of(made.items[0].steps[0], around).backend == "gloo"


def test_a_persons_item_looks_at_the_documents(tmp_path: Path, store: Store) -> None:
    """A runbook that is missing, empty, or older than a postmortem fails; else a signature is awaited."""
    made = checklist(tmp_path, PERSON)

    def why() -> str:
        (result,) = run(made, store).run.items
        return f"{result.outcome.value}: {result.why}"

    assert why() == "fail: there is no runbook.md"
    (tmp_path / "runbook.md").touch()
    assert why() == "fail: runbook.md is empty"
    (tmp_path / "runbook.md").write_text("what to do")
    assert why().startswith("not_run: waits for a signature")
    (tmp_path / "post").mkdir()
    later = tmp_path / "post" / "2026-01-01.md"
    later.write_text("what happened")
    os.utime(later, (time.time() + 60, time.time() + 60))
    assert "older than post/2026-01-01.md" in why()
    assert exit_code(made, run(made, store).run) == 1


def test_waiting_for_a_person_is_no_error_of_the_run(tmp_path: Path, store: Store) -> None:
    """Signing comes after the run; the gate insists on it."""
    (tmp_path / "runbook.md").write_text("what to do")
    made = checklist(tmp_path, GOOD, PERSON)

    assert exit_code(made, run(made, store).run) == 0


def test_only_some_items(tmp_path: Path, store: Store) -> None:
    """``--item`` runs those; an unknown one is named with those that exist."""
    made = checklist(tmp_path, GOOD, BAD)

    assert [r.id for r in run(made, store, ["bad"]).run.items] == ["bad"]
    with pytest.raises(UsageError, match=r"--item x: .* it has: good, bad"):
        run(made, store, ["x"])


def test_a_run_that_is_cut_short_keeps_what_has_ended_and_goes_on(tmp_path: Path, store: Store) -> None:
    """Finished items are stored at once; --resume keeps the passed ones and says where they come from."""
    trace = tmp_path / "trace"
    counted = json.loads(prints({"a": 1}, "a == 1"))
    counted["command"][2] = f"open({str(trace)!r}, 'a').write('x'); " + counted["command"][2]
    made = checklist(tmp_path, item("one", json.dumps(counted)), BAD, GOOD)

    cut = run(made, store, listener=StopAfter("bad"))

    assert (cut.interrupted, cut.run.complete) == (True, False)
    assert [r.id for r in cut.run.items] == ["one", "bad"]
    resumed = run(made, store, resume=True)
    assert trace.read_text() == "x"
    assert resumed.run.complete
    assert {r.id: bool(r.carried_from) for r in resumed.run.items} == {
        "one": True,
        "bad": False,
        "good": False,
    }


def test_nothing_is_resumed_that_was_run_for_something_else(tmp_path: Path, store: Store) -> None:
    """Another checklist, another environment: all of it again."""
    made = checklist(tmp_path, GOOD, BAD)
    run(made, store, listener=StopAfter("good"))

    changed = checklist(tmp_path, GOOD.replace("it does", "it does more"), BAD)

    assert not any(r.carried_from for r in run(changed, store, resume=True).run.items)


@pytest.fixture
def slow_run(tmp_path: Path, store: Store) -> Iterator["subprocess.Popen[str]"]:
    """A run whose second item takes a minute, once that has started; its child's pid is in ``started``."""
    started = tmp_path / "started"
    step = {"command": ["sh", "-c", f"sleep 60 & echo $! > {started}; wait"], "pass": "a == 1"}
    checklist(tmp_path, GOOD, item("slow", json.dumps(step)))
    command = (
        *(sys.executable, "-m", "harness.cli", "checklist", "run", "mine.yaml"),
        *("--out", str(tmp_path / "out")),
    )
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, preexec_fn=heed_signals
    ) as process:
        deadline = time.monotonic() + 30
        while not (started.exists() and started.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        yield process
        process.kill()


def assert_gone(tmp_path: Path) -> None:
    """What the second item started does not run any more."""
    pid = int((tmp_path / "started").read_text())
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(5)


def test_a_killed_run_is_no_pass_and_leaves_nothing_running(
    tmp_path: Path, slow_run: "subprocess.Popen[str]"
) -> None:
    """SIGKILL in the middle: finished items are there, the rest is not, the lock is free."""
    slow_run.send_signal(signal.SIGKILL)
    slow_run.wait(30)
    kept = Store(tmp_path / "out" / "mine")

    (entry,) = kept.chain().entries

    assert entry.run is not None
    assert ([r.id for r in entry.run.items], entry.run.complete) == (["good"], False)
    assert_gone(tmp_path)
    with kept.locked():
        pass


def test_ctrl_c_stops_the_step_and_keeps_the_rest(tmp_path: Path, slow_run: "subprocess.Popen[str]") -> None:
    """Exit code 130; what ran is killed, what had ended is stored, and how to go on is said."""
    slow_run.send_signal(signal.SIGINT)
    out, _ = slow_run.communicate(timeout=30)

    assert slow_run.returncode == 130
    assert "--resume" in out
    assert_gone(tmp_path)


def test_results_that_cannot_be_kept_are_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is a file: said before anything runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").write_text("")
    made = checklist(tmp_path, GOOD)

    with pytest.raises(PrerequisiteError, match="--out"):
        run(made, Store(tmp_path / "results"))


def test_the_disk_fills_up_in_the_middle(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with a message; what was stored before is unharmed and is no pass of the rest."""
    made = checklist(tmp_path, GOOD, item("two", prints({"a": 1}, "a == 1")))
    real, writes = Path.write_bytes, []

    def nearly_full(self: Path, data: bytes) -> int:
        writes.append(self)
        if len([path for path in writes if "run.json" in path.name]) > 2:
            raise OSError(28, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", nearly_full)
    with pytest.raises(PrerequisiteError, match="No space left on device: results cannot be kept"):
        run(made, store)
    monkeypatch.undo()

    (entry,) = store.chain().entries
    assert entry.run is not None
    assert ([r.id for r in entry.run.items], entry.run.complete) == (["good"], False)
