"""Incidents as people paste them: an allowed answer, and nobody innocent."""

from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Diagnosis
from tests.diagnose.logs.cases.writing import write
from tests.diagnose.logs.wild import FAILING, WILD, Wild

EVERY = [
    pytest.param(
        wild,
        id=name,
        marks=[pytest.mark.xfail(strict=True, reason=FAILING[name])] if name in FAILING else [],
    )
    for name, wild in WILD.items()
]


def answer(wild: Wild, folder: Path) -> Diagnosis:
    return diagnose(write(wild.files(), folder), world_size=wild.world).diagnosis


@pytest.mark.parametrize("wild", EVERY)
def test_wild(wild: Wild, tmp_path: Path) -> None:
    """The kind is an allowed one, the guilty are accused, and nobody innocent is."""
    diagnosis = answer(wild, tmp_path)

    convicted, accused = set(diagnosis.culprits), {*diagnosis.culprits, *diagnosis.suspects}
    assert convicted <= {*wild.culprits, *wild.may_convict}, f"innocent: {diagnosis.summary}"
    assert not (wild.calm and accused), f"accused in a calm log: {diagnosis.summary}"
    assert diagnosis.kind.value in wild.kinds, diagnosis.summary
    assert set(wild.culprits) <= convicted, diagnosis.summary
    assert set(wild.suspects) <= accused, diagnosis.summary
    assert wild.expected_ranks in (None, diagnosis.ranks.expected), diagnosis.ranks
    assert not [word for word in wild.not_said if word in diagnosis.summary], diagnosis.summary
    assert all(word in diagnosis.summary for word in wild.said), diagnosis.summary
    assert all(
        citation.file is None or (tmp_path / citation.file).is_file() for citation in diagnosis.evidence
    )


def test_failing_exist() -> None:
    """Whatever is marked as failing is an incident that exists."""
    assert set(FAILING) <= set(WILD)
