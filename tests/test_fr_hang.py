"""The spine for real: ranks, recorder, py-spy, bundle, diagnosis, verdict."""

import json
import shutil
from pathlib import Path

import pytest

from harness.bundle.codec import to_json
from harness.diagnose.api import diagnose
from harness.experiment import RunResult
from harness.model.kinds import Kind
from harness.model.verdict import Outcome
from tests.conftest import Drill

pytestmark = pytest.mark.ranks

KINDS = {
    "size": Kind.COLLECTIVE_SIZE_MISMATCH,
    "size_more": Kind.COLLECTIVE_SIZE_MISMATCH,
    "skip": Kind.COLLECTIVE_SKIPPED,
    "dtype": Kind.COLLECTIVE_DTYPE_MISMATCH,
    "type": Kind.COLLECTIVE_TYPE_MISMATCH,
    "extra": Kind.COLLECTIVE_EXTRA,
}


def explain(run: RunResult) -> str:
    """What a failed assertion should show."""
    return f"{run.bundle}\n{run.notice}\n{run.result.diagnosis}\n{run.verdict}"


def assert_convicted(run: RunResult, kind: Kind, culprits: tuple[int, ...]) -> None:
    """A pass that names exactly the injected ranks."""
    diagnosis = run.result.diagnosis
    assert run.verdict.verdict is Outcome.PASS, explain(run)
    assert (diagnosis.kind, diagnosis.culprits) == (kind, culprits), explain(run)
    assert not diagnosis.suspects
    everybody = set(range(run.plan.nproc))
    assert set(diagnosis.victims) == everybody - set(culprits)


@pytest.mark.parametrize("culprit", [0])
@pytest.mark.parametrize("mode", KINDS)
def test_every_mode_convicts_exactly_the_culprit(drill: Drill, mode: str, culprit: int) -> None:
    """Each way to break the collectives is named, with the right rank and nobody else."""
    run = drill("fr_hang", mode=mode, culprit=str(culprit))

    assert_convicted(run, KINDS[mode], (culprit,))


@pytest.mark.sweep
@pytest.mark.parametrize("culprit", range(8))
@pytest.mark.parametrize("mode", KINDS)
def test_sweep(drill: Drill, mode: str, culprit: int) -> None:
    """Every mode with every culprit."""
    run = drill("fr_hang", mode=mode, culprit=str(culprit))

    assert_convicted(run, KINDS[mode], (culprit,))


@pytest.mark.parametrize(
    ("mode", "culprits"),
    [
        pytest.param("size", "1,5", marks=pytest.mark.sweep),
        ("skip", "0,3,6"),
        pytest.param("extra", "2,7", marks=pytest.mark.sweep),
    ],
)
def test_several_culprits_are_one_set(drill: Drill, mode: str, culprits: str) -> None:
    """Two or three ranks that deviate alike are convicted together."""
    run = drill("fr_hang", mode=mode, culprit=culprits)

    assert_convicted(run, KINDS[mode], tuple(int(rank) for rank in culprits.split(",")))


@pytest.mark.parametrize(
    ("nproc", "mode"), [pytest.param("3", "size", marks=pytest.mark.sweep), ("3", "skip"), ("16", "type")]
)
def test_other_world_sizes(drill: Drill, nproc: str, mode: str) -> None:
    """Two agreeing ranks are enough to convict the third; sixteen work too."""
    run = drill("fr_hang", "numel=4096", mode=mode, culprit="1", nproc=nproc)

    assert_convicted(run, KINDS[mode], (1,))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("size", Kind.COLLECTIVE_SIZE_MISMATCH), ("skip", Kind.COLLECTIVE_TYPE_MISMATCH)],
)
def test_a_tie_of_two_names_suspects(drill: Drill, mode: str, kind: Kind) -> None:
    """With two ranks nobody can tell who is odd: both are suspects, neither is convicted."""
    run = drill("fr_hang", mode=mode, culprit="1", nproc="2")

    assert run.verdict.verdict is Outcome.PASS, explain(run)
    assert run.result.diagnosis.kind is kind
    assert run.result.diagnosis.culprits == ()
    assert run.result.diagnosis.suspects == (0, 1)


@pytest.mark.parametrize("hang_at", [0, 9])
def test_first_and_last_step(drill: Drill, hang_at: int) -> None:
    """A break in the first step (no median yet) or the last one is found like any other."""
    run = drill("fr_hang", f"hang_at={hang_at}", mode="skip")

    assert_convicted(run, Kind.COLLECTIVE_SKIPPED, (5,))
    assert run.result.diagnosis.where.step == hang_at


def test_where_of_a_skip(drill: Drill) -> None:
    """A skip is placed where the call sites part, one operation before everybody stands."""
    where = drill("fr_hang", mode="skip").result.diagnosis.where

    assert (where.group, where.group_ranks) == ("default_pg", tuple(range(8)))
    assert (where.seq, where.stuck_seq, where.step, where.op) == (9, 10, 3, "all_reduce")
    assert where.expected is not None
    assert where.expected.site is not None
    assert where.expected.site.startswith("hang_step")
    assert where.found[5].site is not None
    assert where.found[5].site.startswith("exchange")


def test_where_of_a_size_mismatch(drill: Drill) -> None:
    """Sizes and Python frames of both sides are in `where`."""
    where = drill("fr_hang", mode="size").result.diagnosis.where

    assert where.expected is not None
    assert where.expected.input_sizes == ((1048576,),)
    assert where.found[5].input_sizes == ((1,),)
    assert where.frames[5][0].startswith("hang_step fr_hang.py")
    assert where.frames[0][0].startswith("hang_step fr_hang.py")
    assert where.frames[5][0] != where.frames[0][0]


def test_the_exec_launcher_leaves_the_same_evidence(drill: Drill) -> None:
    """Under torchrun's exec the answer is the same, from the same kinds of files."""
    run = drill("fr_hang", mode="size", launcher="torchrun", nproc="4", culprit="2")

    assert_convicted(run, Kind.COLLECTIVE_SIZE_MISMATCH, (2,))
    assert len(list(run.bundle.glob("logs/*/attempt_0/*/stderr.log"))) == 4


def test_control_is_healthy(drill: Drill) -> None:
    """The same collectives with nothing broken accuse nobody."""
    run = drill("control")

    assert run.verdict.verdict is Outcome.PASS, explain(run)
    assert run.result.diagnosis.kind is Kind.HEALTHY


def test_a_fault_that_never_fires_is_inconclusive(drill: Drill) -> None:
    """A drill whose fault did not happen proves nothing."""
    run = drill("fr_hang", "hang_at=99")

    assert run.verdict.verdict is Outcome.INCONCLUSIVE, explain(run)
    assert run.verdict.checks["fault_fired"].ok is False


def test_the_stored_bundle_gives_the_same_diagnosis_anywhere(drill: Drill, tmp_path: Path) -> None:
    """Renamed, copied, without the spec, the injection record and the events: the same answer."""
    run = drill("fr_hang", mode="type")
    copy = tmp_path / "elsewhere" / "x"
    shutil.copytree(run.bundle, copy)
    for name in ("run.json", "injection.jsonl", "events.jsonl", "diagnosis.json", "verdict.json"):
        (copy / name).unlink()

    again = diagnose(copy).diagnosis

    assert again == run.result.diagnosis


def test_the_bundle_is_complete_and_says_so(drill: Drill) -> None:
    """Everything the contract lists is there, and the manifest tells nothing of the fault."""
    bundle = drill("fr_hang", mode="skip").bundle

    for rank in range(8):
        assert (bundle / f"flight_recorder/attempt_0/rank_{rank}").stat().st_size > 0
        assert json.loads((bundle / f"stacks/attempt_0/0/rank_{rank}.json").read_text())[0]["threads"]
        assert (bundle / f"signals/attempt_0/rank_{rank}.jsonl").read_text().count("\n") >= 3
    ranks = json.loads((bundle / "ranks.json").read_text())
    assert [r["rank"] for r in ranks["ranks"]] == list(range(8))
    assert ranks["ranks"][0]["groups"][0]["ranks"] == list(range(8))
    launcher = json.loads((bundle / "launcher.json").read_text())
    assert len(launcher["attempts"][0]["pids"]) == 8
    manifest = json.loads((bundle / "bundle.json").read_text())
    assert manifest["phases"][-1] == "judged"
    assert "fr_hang" not in json.dumps(manifest)


def test_timings_and_json(drill: Drill) -> None:
    """The contract's document has every key, and the durations add up."""
    from harness.report.documents import run_document

    run = drill("fr_hang", mode="extra")
    document = run_document(run)

    assert isinstance(document, dict)
    assert list(document) == [
        "schema", "drill", "params", "verdict", "diagnosis", "bundle", "seconds", "page", "error",
        "backend_reason", "notes", "watchdog",
    ]  # fmt: skip
    seconds = document["seconds"]
    assert isinstance(seconds, dict)
    assert list(seconds) == [
        "launch", "fault_to_notice", "notice_to_diagnosis", "fault_to_diagnosis", "total",
    ]  # fmt: skip
    total = run.seconds.fault_to_diagnosis
    parts = (run.seconds.fault_to_notice, run.seconds.notice_to_diagnosis)
    assert total == pytest.approx(sum(p for p in parts if p is not None), abs=0.05)
    assert json.loads(json.dumps(to_json(document))) == document
