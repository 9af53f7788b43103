"""Several runs in one command: each gets its line, none stops another, the worst exit code counts."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml

from harness.many import worst
from harness.observe.machine import look
from tests.conftest import heed_signals, survivors

DRILL = (sys.executable, "-m", "harness.cli")

HEAD = "summary: s\nscript: {name}.py\nnproc: 2\ntags: [mine{tags}]\n"
HEALTHY = "mode: a\nmodes: {a: {summary: s, expect: {kind: healthy, accused: nobody}}}\n"
BREAKS = "culprit: [1]\nmode: a\nmodes: {a: {summary: s, expect: {kind: rank_exited}}}\n"
PARSE = (
    "import argparse, os, time, torch.distributed as dist\nfrom harness.worker import Session\n"
    "p = argparse.ArgumentParser(); p.add_argument('--culprit', type=int); p.add_argument('--mode')\n"
    "p.add_argument('--backend'); a = p.parse_args()\n"
)
STEPS = "with Session.join() as s:\n    for step in s.steps(3): dist.barrier()\n"
LEAVES = "with Session.join() as s:\n    for step in s.steps(3):\n        if s.rank: os._exit(7)\n"
KILLS_THE_LAUNCHER = (
    "import psutil\nwith Session.join():\n    psutil.Process().parents()[1].kill(); time.sleep(9)\n"
)
FOR_EVER = "with Session.join() as s:\n    for step in s.steps(10**6): time.sleep(0.05)\n"


def write(drills: Path, name: str, spec: str, script: str, tags: str = "") -> None:
    """One tiny drill of two ranks."""
    drills.mkdir(exist_ok=True)
    head = HEAD.format(name=name, tags=tags)
    (drills / f"{name}.yaml").write_text(f"name: {name}\n{head}{spec}")
    (drills / f"{name}.py").write_text(PARSE + script)


def drill(*args: str, cwd: Path, prelude: str = "") -> "subprocess.CompletedProcess[str]":
    """One `drill run` in a folder of its own, with `prelude` run in its process first."""
    code = f"{prelude}\nfrom harness.cli import main; main()"
    command = (sys.executable, "-c", code, "run", *args)
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 0), 0), ((0, 4), 4), ((3, 4, 0), 3), ((4, 3, 1), 1), ((1, 5, 3), 5), ((4, 0), 4)],
)
def test_the_worst_code_counts(codes: tuple[int, ...], code: int) -> None:
    """The contract's order is 5, 1, 3, 4, 0."""
    assert worst(codes) == code


@pytest.mark.ranks
def test_no_run_stops_another(tmp_path: Path, tag: str) -> None:
    """A fail, one undecided, one that cannot run, a bug of ours, a dead launcher: all run, all are told."""
    drills = tmp_path / "drills"
    write(drills, "good", HEALTHY, STEPS)
    write(drills, "wrong", HEALTHY, LEAVES)
    write(drills, "unfired", BREAKS.replace("[1]", "[0]") + "timeout_s: 60\nbackends: [gloo]\n", STEPS)
    (drills / "unfired.yaml").write_text(
        (drills / "unfired.yaml").read_text().replace("nproc: 2", "nproc: 3")
    )
    write(drills, "gpus", HEALTHY + "backends: [gloo, nccl]\n", STEPS)
    write(drills, "buggy", HEALTHY, STEPS)
    write(drills, "deadly", HEALTHY, KILLS_THE_LAUNCHER)
    (tmp_path / "drill.toml").write_text('[drills.gpus]\nbackend = "nccl"\nnproc = 64\n')
    prelude = (
        "import harness.experiment as e; real = e.diagnose\n"
        "def diagnose(path, **k):\n"
        "    if 'buggy' in path.name: raise RuntimeError('a bug\\x07')\n"
        "    return real(path, **k)\n"
        "e.diagnose = diagnose\n"
    )

    done = drill("--tag", "mine", "-j", "2", "--json", "--junit", "j.xml", cwd=tmp_path, prelude=prelude)

    assert done.returncode == 5, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["drill"] for run in runs] == ["buggy", "deadly", "good", "gpus", "unfired", "wrong"]
    verdicts = [run["verdict"] and run["verdict"]["verdict"] for run in runs]
    assert verdicts == [None, None, "pass", None, "inconclusive", "fail"]
    assert [run["error"] and run["error"]["exit_code"] for run in runs] == [5, 5, None, 4, None, None]
    assert "launcher process ended (signal SIGKILL)" in runs[1]["error"]["message"]
    assert "need 64 GPUs" in runs[3]["error"]["message"]
    lines = done.stderr.splitlines()
    assert sum(line.startswith("PASS          good a") for line in lines) == 1
    (wrong,) = (line for line in lines if line.startswith("FAIL          wrong a"))
    assert "rank_exited" in wrong
    assert runs[5]["bundle"] in wrong
    assert any(line.startswith("CANNOT RUN    gpus a") and "cannot run: " in line for line in lines)
    assert any(line.startswith("INCONCLUSIVE  unfired a, rank 0") for line in lines)
    assert "RuntimeError: a bug" in done.stderr
    last = "1 of 6 passed, 1 failed, 1 inconclusive, 1 could not run, 2 ended in error; "
    assert lines[-1].startswith(last)
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("drill ")) :]
    assert max(map(len, table)) <= 100

    (suite,) = JUnitXml.fromfile(str(tmp_path / "j.xml"))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 1, 4, 0)
    cases = {case.classname: case for case in suite}
    assert cases["unfired"].name == "a, rank 0"
    (failed,) = cases["wrong"].result
    assert isinstance(failed, Failure)
    assert "nobody_else_accused" in failed.text
    assert "diagnosed: rank_exited" in failed.text
    assert runs[5]["bundle"] in cases["wrong"].system_out
    assert all(isinstance(cases[name].result[0], Error) for name in ("unfired", "gpus", "buggy", "deadly"))
    assert "fault_fired" in cases["unfired"].result[0].text
    assert cases["good"].result == []


@pytest.mark.ranks
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_nothing_outlives_an_interrupt(tmp_path: Path, tag: str, signum: signal.Signals) -> None:
    """Two runs at once and one waiting: all ranks go, bundles stay, the JUnit file is whole."""
    for name in ("one", "two", "waits"):
        write(tmp_path / "drills", name, HEALTHY, FOR_EVER)
    process = subprocess.Popen(
        (*DRILL, "run", "one", "two", "waits", "-j", "2", "--junit", "j.xml"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,
    )
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("runs/2*/signals/attempt_0/rank_1.jsonl"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)

    process.send_signal(signum)
    out, err = process.communicate(timeout=20)

    assert not survivors(tag)
    bundles = [path for path in tmp_path.glob("runs/2*") if not path.is_symlink()]
    assert sorted(path.name.rpartition("-")[2] for path in bundles) == ["one", "two"]
    (suite,) = JUnitXml.fromfile(str(tmp_path / "j.xml"))
    assert (suite.tests, suite.errors) == (3, 3)
    if signum is signal.SIGKILL:
        return
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "ranks stopped, bundles kept" in err
    assert out.splitlines()[-1].startswith("0 of 3 passed, 3 interrupted; ")
    for bundle in bundles:
        assert "stopped" in json.loads((bundle / "bundle.json").read_text())["phases"]
        assert not (bundle / "live").exists()


@pytest.mark.skipif(look().why_no_nccl is None, reason="this machine has a card")
def test_what_only_a_card_can_show_is_left_out_of_a_sweep_and_said(tmp_path: Path) -> None:
    """A sweep of a machine without one is not short of a prerequisite; asked for by name, a mode is."""
    swept = drill("item_stall", "--sweep", "--nproc", "4", "--dry-run", cwd=tmp_path)
    named = drill("item_stall", "--sweep", "--mode", "stream", "--nproc", "4", "--dry-run", cwd=tmp_path)

    assert swept.returncode == 0
    assert "the sweep goes without item_stall stream: no GPU on this machine" in swept.stderr
    assert "mode stream" not in swept.stdout
    assert named.returncode == 4


@pytest.mark.ranks
def test_repeat_counts_passes(tmp_path: Path, tag: str) -> None:
    """How often it passed is said, and each repetition has a bundle and a line of its own."""
    done = drill("control", "--nproc", "2", "--repeat", "3", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {line[14:34] for line in lines[:3]} == {f"control none, {n} of 3" for n in (1, 2, 3)}
    assert any(line.split()[:6] == ["control", "none", "-", "3", "of", "3"] for line in lines)
    assert lines[-1].startswith("3 of 3 passed; ")
    assert len(list(tmp_path.glob("runs/2*-control*"))) == 3


def dry(*args: str, cwd: Path) -> list[tuple[str, str, list[int]]]:
    """Drill, mode and culprits of every run that a command would start."""
    done = drill(*args, "--dry-run", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    plans = json.loads(done.stdout)["plans"]
    return [(plan["drill"], plan["mode"], plan["culprits"]) for plan in plans]


def test_a_sweep_takes_every_mode_and_rank(tmp_path: Path) -> None:
    """By itself it means all drills; a drill that breaks no rank runs once a mode; flags fix a side."""
    write(tmp_path / "drills", "good", HEALTHY, STEPS)
    plans = dry("--sweep", "--nproc", "4", cwd=tmp_path)

    assert plans.count(("good", "a", [])) == 1
    modes = {mode for name, mode, _ in plans if name == "fr_hang"}
    assert [c for n, m, c in plans if (n, m) == ("fr_hang", "size")] == [[0], [1], [2], [3]]
    assert not look().why_no_nccl or ("item_stall", "stream") not in {(n, m) for n, m, _ in plans}
    assert len([1 for name, _, _ in plans if name == "fr_hang"]) == 4 * len(modes)
    assert dry("fr_hang", "--sweep", "--mode", "skip", "--culprit", "2", cwd=tmp_path) == [
        ("fr_hang", "skip", [2])
    ]
    assert dry("--tag", "mine", "--sweep", cwd=tmp_path) == [("good", "a", [])]


def test_all_with_a_culprit_means_the_drills_that_break_one(tmp_path: Path) -> None:
    """`--all --culprit 3` does not stop at the control run."""
    plans = dry("--all", "--culprit", "3", cwd=tmp_path)

    assert ("control", "none", []) in plans
    assert ("fr_hang", "size", [3]) in plans


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("control", "--all"), "not both"),
        (("--tag", "nothing"), "--tag nothing: no drill has it; there are: "),
        (("--all", "--set", "hang_at=2"), "has no such parameter"),
        (("--all", "--nproc", "2", "--culprit", "5"), ": --culprit 5: outside the world"),
        (("control", "--repeat", "0"), "--repeat"),
        (("control", "-j", "none"), "-j"),
    ],
)
def test_usage_errors_come_before_anything_starts(tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    """Exit 2 and the reason; nothing is written."""
    done = drill(*args, "--junit", "j.xml", cwd=tmp_path)

    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_junit_file_stops_before_anything_starts(tmp_path: Path) -> None:
    """Exit 4 before the first run. /proc refuses even root."""
    done = drill("control", "--junit", "/proc/nowhere/j.xml", cwd=tmp_path)

    assert done.returncode == 4
    assert "--junit /proc/nowhere/j.xml: " in done.stderr
    assert not (tmp_path / "runs").exists()
