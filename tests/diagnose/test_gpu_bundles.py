"""What runs on GPUs leave, as torch and py-spy write it: dumps with started kernels, stacks in a synchronize.

Made, not recorded: no card has run these. Their shapes are those of dumps of NCCL and of py-spy's JSON.
"""

import json
import pickle
from pathlib import Path

import pytest

from harness.bundle.codec import write_json
from harness.catalog.backend import NOT_EXERCISED
from harness.diagnose.api import diagnose
from harness.model.bundle import GroupRecord, Manifest, RankMap, RankRecord
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Kind
from harness.report.markdown import diagnosis_markdown
from tests.simulate import Scenario, Shape

WORLD = 4
SYNCHRONIZE = ("synchronize", "/x/site-packages/torch/cuda/__init__.py", 1040)
TRAIN = ("train", "/job/train.py", 30)
ITEM = ("log_loss", "/job/train.py", 12)


def stack(*frames: tuple[str, str, int]) -> str:
    """A rank's process, sampled in these frames, innermost first."""
    listed = [{"name": n, "filename": f, "line": i} for n, f, i in frames]
    thread = {"thread_name": "MainThread", "active": False, "owns_gil": False, "frames": listed}
    return json.dumps([{"pid": 100, "role": "rank", "state": "running", "error": None, "threads": [thread]}])


def bundle(root: Path, scenario: Scenario, own: dict[int, str]) -> Diagnosis:
    """The diagnosis of a shared-card NCCL run with these dumps and stacks."""
    write_json(root / "bundle.json", Manifest(WORLD, "nccl", "torchrun", 1.0, notice="stall: no step"))
    groups = (GroupRecord("0", "default_pg", tuple(range(WORLD))),)
    ranks = [
        RankRecord(r, "h", 100 + r, r, 0, WORLD, "cuda:0", joined=1.0, groups=groups) for r in range(WORLD)
    ]
    write_json(root / "ranks.json", RankMap(WORLD, tuple(ranks)))
    for rank, dump in scenario.dumps(timing=True).items():
        path = root / "flight_recorder" / "attempt_0" / f"rank_{rank}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(dump))
    for rank in range(WORLD):
        path = root / "stacks" / "attempt_0" / "0" / f"rank_{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(own.get(rank, stack(SYNCHRONIZE, TRAIN)))
    return diagnose(root).diagnosis


@pytest.mark.parametrize("seed", range(3))
def test_a_blocked_stream_is_the_device_not_the_host(tmp_path: Path, seed: int) -> None:
    """All hosts sit alike in a synchronize: whose kernel never started, the dumps tell."""
    scenario = Scenario("gpu", Shape(dp=WORLD), seed)
    found = bundle(tmp_path, scenario, {})

    assert (found.kind, found.culprits) == (Kind.GPU_STALLED, (scenario.culprit,)), found.summary


@pytest.mark.parametrize("seed", range(3))
def test_a_value_that_never_comes_on_a_device(tmp_path: Path, seed: int) -> None:
    """The culprit's host sits in .item() and issued nothing; its peers wait in kernels."""
    scenario = Scenario("stall", Shape(dp=WORLD), seed)
    found = bundle(tmp_path, scenario, {scenario.culprit: stack(ITEM, TRAIN)})

    assert (found.kind, found.culprits) == (Kind.RANK_STALLED, (scenario.culprit,)), found.summary


def test_what_a_shared_card_cannot_show_is_in_every_report(tmp_path: Path) -> None:
    """The note that the plan left in the manifest is said wherever the bundle is diagnosed."""
    scenario = Scenario("stall", Shape(dp=WORLD), 1)
    bundle(tmp_path, scenario, {})
    write_json(tmp_path / "bundle.json", Manifest(WORLD, "nccl", "torchrun", 1.0, notes=(NOT_EXERCISED,)))
    found = diagnose(tmp_path).diagnosis

    assert any("links between cards" in line for line in found.missing_evidence)
    assert "links between cards" in diagnosis_markdown(found)


def test_all_started_and_none_done_is_the_fabric(tmp_path: Path) -> None:
    """Every kernel runs and none ends: nobody is accused."""
    found = bundle(tmp_path, Scenario("fabric", Shape(dp=WORLD), 1), {})

    assert (found.kind, found.culprits, found.suspects) == (Kind.FABRIC_STALLED, (), ())
