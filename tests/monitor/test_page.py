"""The page drill, with the real programs: a page comes, once, says enough, and is resolved."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from harness.catalog.find import find_drill
from harness.experiment import RunResult
from harness.judge import with_page
from harness.launch.client import LauncherClient
from harness.model.page import PageReport
from harness.model.verdict import Outcome, Verdict
from harness.monitor import binaries as places
from harness.monitor.binaries import Binaries, find_binaries
from harness.monitor.confirm import ask_person
from harness.monitor.rule_files import Notifying, write_files
from harness.monitor.services import Alertmanager, ServiceDied
from harness.monitor.webhook import Webhook
from tests.conftest import Drill, survivors

QUICK = ("threshold=3", "compute_ms=40", "at=20")


def rehearse(drill: Drill, mode: str, *sets: str) -> RunResult:
    """One scene with a threshold of three seconds; nothing of the monitoring is left running."""
    run = drill("page", *QUICK, *sets, mode=mode)
    mine = [p for p in psutil.Process().children(recursive=True) if "page" in " ".join(_command(p))]
    assert not mine
    assert not list((run.bundle / "page").glob("*-data"))
    return run


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def page_of(run: RunResult) -> PageReport:
    """What came of the page; the run passed."""
    assert run.page is not None
    assert run.verdict.verdict is Outcome.PASS, (run.verdict, run.page)
    return run.page


@pytest.mark.ranks
def test_a_frozen_step_pages_and_is_resolved(drill: Drill, binaries: Binaries) -> None:
    """The links add up to the time from the last step to the message; moving again is told too."""
    page = page_of(run := rehearse(drill, "stall"))

    assert list(page.links) == ["last_step", "rule", "alertmanager", "group_wait", "webhook"]
    assert page.seconds == pytest.approx(sum(page.links.values()), abs=0.05)
    assert page.links["last_step"] < 2
    assert page.links["last_step"] + page.links["rule"] > 2.99
    assert 0.5 < page.links["group_wait"] < 3
    assert [m.firing for m in page.messages] == [True, False]
    assert re.search(r"page-drill: no step for .*; at step \d+", page.messages[0].text)
    assert json.loads((run.bundle / "page.json").read_text())["broken_link"] is None


@pytest.mark.ranks
def test_a_restart_in_progress_pages_nobody_twice(drill: Drill, binaries: Binaries) -> None:
    """The frozen rank is killed, the restart is held up past the threshold: one page, then it is over."""
    page = page_of(rehearse(drill, "restart"))

    assert page.inhibited is True and page.pages == 1
    assert page.resolved_after_s is not None


@pytest.mark.ranks
def test_a_dead_exporter_pages(drill: Drill, binaries: Binaries) -> None:
    """Without it the stall rule is blind, so its absence is an alert of its own."""
    page = page_of(rehearse(drill, "exporter"))

    assert page.expected == "TrainingMetricsAbsent" and page.resolved_after_s is not None


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("mode", "words"),
    [("nan", "NaN or infinite"), ("xid", "XID 79 on .* gpu 0000:3b:00"), ("ckpt", "could not be saved")],
)
def test_what_else_pages(mode: str, words: str, drill: Drill, binaries: Binaries) -> None:
    """A loss that is no number, a card, a save."""
    page = page_of(rehearse(drill, mode))

    assert page.pages == 1 and re.search(words, page.messages[0].text)


@pytest.mark.ranks
def test_prometheus_dying_in_the_middle_decides_nothing(
    drill: Drill, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said which program ended; no pass, no fail; the job is let go and ends well."""
    from harness.monitor.page_drill import PageDrill

    def freeze(self: PageDrill) -> None:
        real(self)
        psutil.Process(self._stack.prometheus.pid).kill()

    real = PageDrill._freeze
    monkeypatch.setattr(PageDrill, "_freeze", freeze)
    run = rehearse(drill, "stall")

    assert run.verdict.verdict is Outcome.INCONCLUSIVE
    assert run.page is not None and "prometheus ended in the middle" in str(run.page.died)
    assert run.result.diagnosis.kind.value == "healthy"


@pytest.mark.ranks
def test_a_person_confirms_a_page_of_their_own_alertmanager(
    tmp_path: Path, binaries: Binaries, tag: str
) -> None:
    """The marked page comes out of another Alertmanager; the code word in it, typed, is a pass."""
    with Webhook() as pager:
        write_files(tmp_path, notifying=Notifying(pager.url, group_wait_s=1))
        theirs = Alertmanager(binaries.alertmanager, tmp_path)
        theirs.start()
        command = (sys.executable, "-m", "harness.cli", "run", "page", "--threshold", "3", "--json")
        process = subprocess.Popen(
            (*command, "--set", "compute_ms=40", "--alertmanager", theirs.url),
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        answered = threading.Event()
        while not pager.received and process.poll() is None:
            answered.wait(0.05)
        text = pager.received[0].text
        code = re.search(r"^DRILL, no incident. Code word (\w+)\.", text)
        assert code is not None
        out, errors = process.communicate(f"whatever\n{code[1]}\n", timeout=60)
        theirs.stop()
    said = json.loads(out)

    assert process.returncode == 0, said
    assert said["verdict"]["checks"]["page_confirmed"]["ok"] is True
    assert said["page"]["scene"] == "own" and code[1] not in errors


@pytest.mark.ranks
def test_killed_in_the_middle_it_leaves_nothing(tmp_path: Path, binaries: Binaries, tag: str) -> None:
    """Prometheus, Alertmanager, exporter and a frozen rank die with the command, whatever ends it."""
    command = (sys.executable, "-m", "harness.cli", "run", "page", "--threshold", "60")
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stderr is not None
        frozen = any("is frozen after step" in line for line in process.stderr)
        process.kill()

    assert frozen
    assert not survivors(tag, 5.0)


def test_without_the_programs_it_cannot_run(
    launcher: LauncherClient, drill: Drill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit code 4, which program, where it was looked for, and what fetches it."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(places, "FETCHED", tmp_path)

    with pytest.raises(places.PrerequisiteError, match=r"prometheus is not there .*install_monitoring.sh"):
        find_binaries(tmp_path / "given")
    assert places.PrerequisiteError.exit_code == 4


@pytest.mark.parametrize(
    ("sets", "mode", "says"),
    [
        (("threshold=300",), "stall", "the ranks would abort before a late page came; more than 660"),
        ((), "own", "mode own needs your own Alertmanager"),
        (("alertmanager=localhost:9093",), "own", "give it as http://HOST:PORT"),
        (("alertmanager=http://127.0.0.1:1",), "own", "no Alertmanager answers there"),
    ],
)
def test_what_cannot_work_is_said_at_once(
    sets: tuple[str, ...], mode: str, says: str, drill: Drill, binaries: Binaries, tmp_path: Path
) -> None:
    """Before anything starts, and without a bundle that holds nothing."""
    with pytest.raises(places.PrerequisiteError, match=says):
        drill("page", *sets, mode=mode)
    assert not (tmp_path / "runs").exists()


def test_a_program_that_does_not_start_says_why(tmp_path: Path, binaries: Binaries) -> None:
    """Its own last words, and where the rest is."""
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: nobody}\n")

    with pytest.raises(ServiceDied, match=r"alertmanager does not start: .*alertmanager.log"):
        Alertmanager(binaries.alertmanager, tmp_path).start()


CAME = PageReport("stall", "TrainingStepStalled", 120.0, 101.0, {"rule": 100.0}, pages=1)


@pytest.mark.parametrize(
    ("changes", "outcome", "failing"),
    [
        ({}, Outcome.PASS, None),
        ({"seconds": 121.0}, Outcome.FAIL, "paged"),
        ({"seconds": None, "broken_link": "webhook", "pages": 0}, Outcome.FAIL, "paged"),
        ({"pages": 2}, Outcome.FAIL, "paged_once"),
        ({"missing": ("the step",)}, Outcome.FAIL, "page_says"),
        ({"resolves": True}, Outcome.FAIL, "page_resolved"),
        ({"inhibited": False}, Outcome.FAIL, "page_inhibited"),
        ({"died": "prometheus ended", "seconds": None}, Outcome.INCONCLUSIVE, None),
        ({"scene": "own", "died": "nobody confirmed"}, Outcome.INCONCLUSIVE, None),
    ],
)
def test_verdicts_of_a_page(changes: dict[str, object], outcome: Outcome, failing: str | None) -> None:
    """Late, twice, speechless, never over: each is a fail by its own check; what died decides nothing."""
    page = dataclasses.replace(CAME, **changes)  # type: ignore[arg-type]
    verdict = with_page(Verdict(Outcome.PASS, {}), page)

    assert verdict.verdict is outcome
    assert [name for name, check in verdict.checks.items() if check.ok is False] == (
        [failing] if failing else []
    )


def test_a_pass_needs_the_diagnosis_too() -> None:
    """A page in time does not make up for a wrong diagnosis."""
    assert with_page(Verdict(Outcome.FAIL, {}), CAME).verdict is Outcome.FAIL


@pytest.mark.parametrize(
    ("typed", "confirmed", "why"),
    [(b"no\n ABC123 \n", True, None), (b"no\n", None, "standard input is closed")],
)
def test_who_confirms(typed: bytes, confirmed: bool | None, why: str | None) -> None:
    """The code word counts in any case and after other lines; a closed input is nobody."""
    reading, writing = os.pipe()
    os.write(writing, typed)
    os.close(writing)
    answer = ask_person("abc123", 5.0, threading.Event(), reading)
    os.close(reading)

    assert answer.confirmed is confirmed and (why or "") in (answer.why_not or "")


def test_the_drill_is_in_the_catalog() -> None:
    """Seven scenes, the stall by default, with the real rule's threshold."""
    spec = find_drill("page")

    assert set(spec.modes) == {"stall", "restart", "exporter", "nan", "xid", "ckpt", "own"}
    assert spec.default_mode == "stall" and spec.parameters["threshold"].default == 90
