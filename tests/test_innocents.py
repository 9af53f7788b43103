"""Real incidents, and bundles damaged afterwards, that once convicted an innocent."""

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.experiment import RunResult
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Kind
from tests.conftest import Drill

pytestmark = pytest.mark.ranks

SPEC = """
name: mine
summary: incidents as users write them
script: mine.py
nproc: 4
culprit: [2]
mode: sleep
modes:
  sleep: {summary: never arrives, expect: {kind: rank_stalled}}
  kill: {summary: SIGKILL, expect: {kind: rank_exited, how: signal}}
  raise: {summary: an exception of an odd name, expect: {kind: software_error}}
  closed: {summary: an exception that speaks of a pipe, expect: {kind: software_error}}
  exit0: {summary: leaves by sys.exit, expect: {kind: rank_exited, how: finished_early}}
  hardexit0: {summary: leaves by os._exit, expect: {kind: rank_exited, how: finished_early}}
  exit0_wrapped: {summary: the others wrap what they lost, expect: {kind: rank_exited, how: finished_early}}
  stop: {summary: SIGSTOP, expect: {kind: rank_stalled, site: stopped}}
  size_wrapped: {summary: victims wrap what they lost, expect: {kind: collective_extra}}
  size_logged: {summary: innocents logged a handled error, expect: {kind: collective_extra}}
  skip_last: {summary: all later calls pair, expect: {kind: collective_skipped}}
  kill_wrapped: {summary: SIGKILL; the others wrap it at once, expect: {kind: rank_exited, how: signal}}
  watchdog: {summary: the others lose patience in their own words, expect: {kind: rank_stalled}}
  impatient: {summary: faulthandler ends the others without a word, expect: {kind: rank_stalled}}
  all_raise: {summary: all raise the same, expect: {kind: software_error, accused: nobody}}
  requeue: {summary: all leave with one exit code, expect: {kind: rank_exited, accused: nobody}}
"""

SCRIPT = """
import argparse, faulthandler, logging, os, signal, sys, time
import torch, torch.distributed as dist
from harness.model.ranks import parse_ranks
from harness.worker import Session

class Odd(Exception): pass
class TrainingError(Exception): pass

parser = argparse.ArgumentParser()
parser.add_argument("--culprit", type=parse_ranks); parser.add_argument("--mode")
parser.add_argument("--backend", default="gloo")
a = parser.parse_args()

def middle(x): dist.all_reduce(x)
def tail(x): dist.all_reduce(x)

def act(fault, x):
    fault.fire()
    if a.mode in ("sleep", "watchdog"): time.sleep(1000)
    if a.mode == "impatient": faulthandler.cancel_dump_traceback_later(); time.sleep(1000)
    if a.mode.startswith("kill"): os.kill(os.getpid(), 9)
    if a.mode == "raise": raise Odd("no such shard: 17")
    if a.mode == "closed": raise RuntimeError("upload failed: Broken pipe talking to the object store")
    if a.mode == "exit0": sys.exit(0)
    if a.mode.startswith("hardexit0") or a.mode == "exit0_wrapped": os._exit(0)
    if a.mode == "stop": os.kill(os.getpid(), signal.SIGSTOP)
    if a.mode.startswith("size"): dist.all_reduce(torch.ones(1))

with Session.join(a.backend, 20) as session:
    fault = session.arm(a.mode, a.culprit or (), 3)
    if a.mode == "size_logged" and not fault.active:
        try: import flash_attention_that_is_not_there
        except ImportError: logging.exception("going on without")
    x = torch.ones(4096)
    for step in session.steps(6):
        try:
            dist.all_reduce(x)
            if fault.due(step) and a.mode == "skip_last": fault.fire()
            else: middle(x)
            if fault.due(step) and a.mode != "skip_last": act(fault, x)
            if step == 3 and a.mode in ("all_raise", "requeue"):
                fault.fire()
                if a.mode == "requeue": sys.exit(75)
                raise Odd(f"rank {session.rank}: loss is nan")
            if a.mode == "impatient": faulthandler.dump_traceback_later(1, exit=True)
            if a.mode == "watchdog":
                work, began = dist.all_reduce(x, async_op=True), time.monotonic()
                while not work.is_completed():
                    if time.monotonic() - began > 1: raise TimeoutError("step took longer than 1 s")
                    time.sleep(0.01)
                continue
            dist.all_reduce(x)
        except RuntimeError as error:
            if a.mode == "kill_wrapped": raise TrainingError(f"step {step} failed") from None
            if "wrapped" in a.mode: raise TrainingError(f"step {step} failed") from error
            raise
"""

Mine = Callable[..., RunResult]


@pytest.fixture
def mine(drill: Drill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mine:
    """Run one mode of a user's own drill."""
    folder = tmp_path / "drills"
    folder.mkdir()
    (folder / "mine.yaml").write_text(SPEC)
    (folder / "mine.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return lambda mode, **flags: drill("mine", mode=mode, **flags)


MODES = [line.split(":")[0].strip() for line in SPEC.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("mode", MODES)
def test_incidents_as_users_write_them(mine: Mine, mode: str) -> None:
    """Odd exceptions, wrapped and handled ones, silent exits, stopped ranks: the right rank and kind."""
    run = mine(mode)

    if mode == "impatient":
        # Their watchdogs leave no dumps: whether the evidence still decides is a matter of luck.
        assert set(run.result.diagnosis.culprits) <= {2}, run.result.diagnosis
        return
    assert run.verdict.verdict.value == "pass", (run.result.diagnosis, run.verdict)
    assert run.result.diagnosis.culprits == (() if mode in ("all_raise", "requeue") else (2,))


def test_two_that_sleep_are_convicted_together(mine: Mine) -> None:
    """The stacks tell them from those that wait."""
    run = mine("sleep", nproc="6", culprit="1,2")

    assert run.result.diagnosis.culprits == (1, 2), run.result.diagnosis


@pytest.fixture(scope="module")
def size_more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle in which gloo aborted a victim, rank 2; rank 3 had all-reduced too much."""
    folder = tmp_path_factory.mktemp("bundle")
    command = (sys.executable, "-m", "harness.cli", "run", "fr_hang", "--mode", "size_more")
    subprocess.run((*command, "--culprit", "3", "--json"), cwd=folder, check=True, capture_output=True)
    return (folder / "runs" / "latest").resolve()


def damaged(bundle: Path, tmp_path: Path, damage: Callable[[Path], object]) -> Diagnosis:
    """The diagnosis of a damaged copy."""
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    damage(copy)
    return diagnose(copy).diagnosis


def rewrite(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change one dump in place."""
    dump = pickle.loads(path.read_bytes())
    change(dump)
    path.write_bytes(pickle.dumps(dump))


def dump_of(bundle: Path, rank: int) -> Path:
    """One rank's dump."""
    return bundle / "flight_recorder" / "attempt_0" / f"rank_{rank}"


def lose_the_last_message(bundle: Path, *ranks: int) -> None:
    """Ranks never got the last message of the call before the break: the abort cut it off."""
    for rank in ranks:
        rewrite(
            dump_of(bundle, rank),
            lambda d: (d["entries"].pop(), d["entries"][-1].update(retired=False)),  # type: ignore[attr-defined, index]
        )


def forget_the_clean_up(bundle: Path) -> None:
    """The agent stopped everybody before it could say that it did."""
    record = json.loads((bundle / "launcher.json").read_text())
    exits = record["attempts"][0]["exits"]
    first = min(e["at"] for e in exits)
    there = {e["rank"] for e in exits if not e["cleanup"]}
    record["attempts"][0]["exits"] = [e for e in exits if e["rank"] in there] + [
        {"rank": r, "pid": 1, "code": -15, "signal": "SIGTERM", "at": first + 0.003, "cleanup": False}
        for r in set(range(8)) - there
    ]
    (bundle / "launcher.json").write_text(json.dumps(record))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no logs": lambda b: shutil.rmtree(b / "logs"),
    "a stray attempt": lambda b: (b / "flight_recorder" / "attempt_7").mkdir(),
    "a stray signal attempt": lambda b: (b / "signals" / "attempt_9").mkdir(),
    "a backup beside the dumps": lambda b: shutil.copy(dump_of(b, 3), dump_of(b, 3).with_name("bak_rank_4")),
    "a rank outside the world": lambda b: shutil.copy(dump_of(b, 3), dump_of(b, 99)),
    "superscript names": lambda b: shutil.copy(dump_of(b, 1), dump_of(b, 1).with_name("rank_²")),
    "no launcher record": lambda b: (b / "launcher.json").unlink(),
    "no rank map": lambda b: (b / "ranks.json").unlink(),
    "no manifest": lambda b: (b / "bundle.json").unlink(),
    "an innocent's dump lost": lambda b: dump_of(b, 6).unlink(),
    "an innocent's dump emptied": lambda b: rewrite(dump_of(b, 6), lambda d: d.update(entries=[])),
    "an innocent's last record cut": lambda b: rewrite(dump_of(b, 6), lambda d: d["entries"].pop()),  # type: ignore[attr-defined]
    "an innocent's middle record cut": lambda b: rewrite(
        dump_of(b, 6),
        lambda d: d["entries"].pop(4),  # type: ignore[attr-defined]
    ),
    "an innocent's sizes unknown": lambda b: rewrite(
        dump_of(b, 6),
        lambda d: d["entries"][-1].update(input_sizes=None),  # type: ignore[index]
    ),
    "an innocent's dump cut short": lambda b: dump_of(b, 6).write_bytes(dump_of(b, 6).read_bytes()[:500]),
    "a last message lost": lambda b: lose_the_last_message(b, 0),
    "two last messages lost": lambda b: lose_the_last_message(b, 0, 7),
    "the clean-up unsaid": forget_the_clean_up,
    "signals full of junk": lambda b: (b / "signals/attempt_0/rank_0.jsonl").write_text('{"step":1e999}\n['),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_elsewhere_does_not_move_the_blame(size_more: Path, tmp_path: Path, name: str) -> None:
    """Seven agreeing dumps against rank 3 outweigh a victim's abort, whatever else is broken."""
    diagnosis = damaged(size_more, tmp_path, DAMAGE[name])

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.COLLECTIVE_SIZE_MISMATCH, (3,)), diagnosis


LOSSES: dict[str, Callable[[Path], object]] = {
    "the culprit's dump": lambda b: dump_of(b, 3).unlink(),
    "all dumps": lambda b: shutil.rmtree(b / "flight_recorder"),
    "all dumps and logs": lambda b: [shutil.rmtree(b / n) for n in ("flight_recorder", "logs")],
    "all dumps but the culprit's": lambda b: [dump_of(b, r).unlink() for r in range(8) if r != 3],
    "an exit of nobody": lambda b: (b / "launcher.json").write_text(
        json.dumps(
            {"attempts": [{"attempt": 0, "started": 1, "pids": {"0": 1}, "exits": [
                {"rank": 99, "pid": 9, "code": -9, "signal": "SIGKILL", "at": 1.0}]}]}
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_where_the_proof_is_lost_nobody_innocent_is_convicted(
    size_more: Path, tmp_path: Path, name: str
) -> None:
    """The culprit, suspects or an honest inconclusive; never the victim that gloo aborted."""
    diagnosis = damaged(size_more, tmp_path, LOSSES[name])

    assert set(diagnosis.culprits) <= {3}, diagnosis
