"""Incidents as people paste them: an allowed answer, and nobody innocent."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Confidence, Kind
from tests.diagnose.logs.cases.writing import write
from tests.diagnose.logs.wild import FAILING, FAILING_BESIDE, FAILING_CENSUS, WILD
from tests.simulate import Scenario, Shape

BESIDE = (
    "config_dump",
    "handled_tracebacks",
    "rank_handled_oom",
    "handled_then_running",
    "wandb_noise",
    "kernel_kills_other",
    "old_xid",
    "words_in_data",
    "tests_in_log",
    "nccl_debug",
    "long_save",
)
"""Logs that say nothing of a hang: beside dumps that convict, the dumps' word stands."""

END = (b"raining completed", b"Finished training", b"wandb: Run summary")

SIZES: dict[str, int] = {
    "label_is_node": 32,
    "nccl_debug": 4,
    "slow_start": 8,
    "half_joined": 8,
    "srun_task_killed": 8,
    "segv_named": 4,
    "glued_bar": 6,
    "elastic_scale_down": 4,
    "rotated": 4,
    "segv_of_eight": 8,
    "srun_tasks_one_by_one": 6,
    "srun_agents": 16,
    "two_ends_of_one_agent": 4,
}
"""How many ranks a log states or shows."""


def marked(names: Iterable[str], failing: Mapping[str, str]) -> list[object]:
    """A parameter each, marked where it fails today."""
    return [
        pytest.param(
            name,
            id=name,
            marks=[pytest.mark.xfail(strict=True, reason=failing[name])] if name in failing else [],
        )
        for name in names
    ]


def answer(name: str, folder: Path) -> Diagnosis:
    wild = WILD[name]
    return diagnose(write(wild.files(), folder), world_size=wild.world).diagnosis


@pytest.mark.parametrize("name", marked(WILD, FAILING))
def test_wild(name: str, tmp_path: Path) -> None:
    """The kind is an allowed one, the guilty are accused, and nobody innocent is."""
    wild, diagnosis = WILD[name], answer(name, tmp_path)

    convicted, accused = set(diagnosis.culprits), {*diagnosis.culprits, *diagnosis.suspects}
    assert convicted <= {*wild.culprits, *wild.may_convict}, f"innocent: {diagnosis.summary}"
    assert not (wild.calm and accused), f"accused in a calm log: {diagnosis.summary}"
    assert not accused & set(wild.never), f"accused: {diagnosis.summary}"
    assert diagnosis.kind.value in wild.kinds, diagnosis.summary
    assert set(wild.culprits) <= convicted, diagnosis.summary
    assert set(wild.suspects) <= accused, diagnosis.summary
    assert not [word for word in wild.not_said if word in diagnosis.summary], diagnosis.summary
    assert all(word in diagnosis.summary for word in wild.said), diagnosis.summary
    assert all(c.file is None or (tmp_path / c.file).is_file() for c in diagnosis.evidence)


@pytest.mark.parametrize("name", marked(BESIDE, FAILING_BESIDE))
def test_beside_dumps(name: str, tmp_path: Path) -> None:
    """Logs that say nothing of the hang do not take the verdict from dumps that convict."""
    scenario = Scenario("skip", Shape(dp=8), 5)
    scenario.write(tmp_path / "dumps", prefix="rank_")
    write({file: _unfinished(data) for file, data in WILD[name].files().items()}, tmp_path / "logs")

    diagnosis = diagnose(tmp_path / "dumps", tmp_path / "logs").diagnosis

    assert diagnosis.culprits == (scenario.culprit,), diagnosis.summary
    assert diagnosis.kind is Kind.COLLECTIVE_SKIPPED, diagnosis.summary


def test_against_dumps(tmp_path: Path) -> None:
    """A crash of one rank in the logs and a skip of another in the dumps: it says so, and is not certain."""
    scenario = Scenario("skip", Shape(dp=8), 5)
    scenario.write(tmp_path / "dumps", prefix="rank_")
    name = "fatal_python" if scenario.culprit != 3 else "segv_named"
    write(WILD[name].files(), tmp_path / "logs")

    diagnosis = diagnose(tmp_path / "dumps", tmp_path / "logs").diagnosis

    assert diagnosis.confidence is not Confidence.CERTAIN
    assert any(f"rank {scenario.culprit}" in out.because for out in diagnosis.ruled_out), diagnosis.ruled_out


@pytest.mark.parametrize("name", marked(SIZES, FAILING_CENSUS))
def test_size(name: str, tmp_path: Path) -> None:
    """The number of ranks is the one that the log states or shows, not one more than the greatest."""
    diagnosis = answer(name, tmp_path)

    assert diagnosis.ranks.expected == SIZES[name]


def test_world_size_too_small(tmp_path: Path) -> None:
    """A rank beyond --world-size is said to speak, rather than silently dropped."""
    write(WILD["glued_bar"].files(), tmp_path)

    diagnosis = diagnose(tmp_path, world_size=4).diagnosis

    assert any("5" in line and "world size" in line for line in diagnosis.missing_evidence)


def test_failing_exist() -> None:
    """Whatever is marked as failing is an incident that exists."""
    assert set(FAILING) <= set(WILD)
    assert set(FAILING_BESIDE) <= set(BESIDE) <= set(WILD)
    assert set(FAILING_CENSUS) <= set(SIZES) <= set(WILD)


def _unfinished(data: bytes) -> bytes:
    """A log without the lines that say that the training came to its end."""
    return b"\n".join(row for row in data.split(b"\n") if not any(word in row for word in END))
