"""Every case of the corpus in each of its dresses: the answer that the rules demand, and nobody innocent."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Citation, Diagnosis
from harness.model.kinds import Kind
from harness.model.ranks import parse_ranks
from tests.diagnose.logs.cases import CASES, DRESSES, Case, Dress
from tests.diagnose.logs.cases.writing import write

PAIRS = [(case, DRESSES[name]) for case in CASES.values() for name in case.dresses]
IDS = [f"{case.name}-{dress.name}" for case, dress in PAIRS]
NOBODY = {Kind.FABRIC_STALLED, Kind.EXTERNAL_STOP, Kind.HEALTHY, Kind.COMM_SLOW}
MERELY = {Kind.HEALTHY, Kind.INCONCLUSIVE}
COLOUR = re.compile(r"\x1b?\[[0-9;]*m")
QUOTED = re.compile(r"`([^`]{8,})`|\"([^\"]{8,})\"|(?<!\w)'([^']{8,})'(?!\w)")

Answer = Callable[[Case, Dress], tuple[Path, Diagnosis]]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """The folder and the diagnosis of a case in a dress, each worked out once."""

    @cache
    def of(name: str, dress: str) -> tuple[Path, Diagnosis]:
        folder = write(CASES[name].build(DRESSES[dress]), tmp_path_factory.mktemp("logs"))
        return folder, diagnose(folder).diagnosis

    return lambda case, dress: of(case.name, dress.name)


every = pytest.mark.parametrize(("case", "dress"), PAIRS, ids=IDS)


@every
def test_kind(case: Case, dress: Dress, answer: Answer) -> None:
    """The kind is one that the rules allow for this incident."""
    _, diagnosis = answer(case, dress)

    assert diagnosis.kind.value in case.expect.kinds, f"rule {case.rule}: {diagnosis.summary}"


@every
def test_accused(case: Case, dress: Dress, answer: Answer) -> None:
    """Exactly the guilty are convicted, and those that cannot be told apart are suspects."""
    _, diagnosis = answer(case, dress)
    expect = case.expect

    if not expect.either:
        assert set(diagnosis.culprits) == set(expect.culprits), f"rule {case.rule}: {diagnosis.summary}"
    assert set(expect.suspects) <= set(diagnosis.suspects), f"rule {case.rule}: {diagnosis.summary}"
    assert set(expect.either) <= {*diagnosis.culprits, *diagnosis.suspects}, f"rule {case.rule}"


@every
def test_innocents(case: Case, dress: Dress, answer: Answer) -> None:
    """Nobody innocent is convicted, no victim either, and where nobody did it nobody is suspected."""
    _, diagnosis = answer(case, dress)

    assert set(diagnosis.culprits) <= case.expect.may_convict, diagnosis.summary
    assert not set(diagnosis.culprits) & set(diagnosis.victims)
    if diagnosis.kind in NOBODY:
        assert diagnosis.suspects == ()
    assert len(diagnosis.suspects) <= max(len(case.expect.suspects), case.world // 2)


@every
def test_place(case: Case, dress: Dress, answer: Answer) -> None:
    """Site, manner, signal and hosts are named where the incident shows them."""
    _, diagnosis = answer(case, dress)
    expect, where = case.expect, diagnosis.where

    if expect.site is not None:
        assert where.site in expect.site.split("|")
    if expect.how is not None:
        assert where.how == expect.how
    if expect.signal is not None:
        assert where.signal == expect.signal
    assert set(expect.hosts) <= set(where.hosts)
    if expect.in_chain is not None:
        assert any(re.search(expect.in_chain, link.lower()) for link in diagnosis.chain), diagnosis.chain


@every
def test_census(case: Case, dress: Dress, answer: Answer) -> None:
    """It says how many ranks there should be, which left nothing, and the last step of the job."""
    folder, diagnosis = answer(case, dress)
    expect, census = case.expect, diagnosis.ranks

    if expect.expected_ranks is not None:
        assert census.expected == expect.expected_ranks
    if expect.missing is not None:
        assert census.missing == expect.missing
    if expect.last_step:
        assert diagnosis.job.last_step == case.incident(dress).last_step
    assert not set(parse_ranks(census.missing)) & set(parse_ranks(census.with_evidence)), folder


@every
def test_evidence(case: Case, dress: Dress, answer: Answer) -> None:
    """A conclusion cites lines that exist, and what it quotes stands there."""
    folder, diagnosis = answer(case, dress)

    if diagnosis.kind not in MERELY:
        assert [c for c in diagnosis.evidence if c.file and c.line], "a conclusion without a cited line"
    for citation in diagnosis.evidence:
        if citation.file is not None:
            _verify(folder, citation)
    for name in diagnosis.key_files:
        assert (folder / name).is_file(), name
    for entry in diagnosis.timeline:
        assert entry.file is None or (folder / entry.file).is_file(), entry


@every
def test_next(case: Case, dress: Dress, answer: Answer) -> None:
    """Who cannot tell says what to collect."""
    _, diagnosis = answer(case, dress)

    if case.expect.next_steps or diagnosis.kind is Kind.INCONCLUSIVE:
        assert diagnosis.next_steps


def test_two_dresses() -> None:
    """Every case is written in two ways at least, so that no answer rests on the writing."""
    assert not [case.name for case in CASES.values() if len(set(case.dresses)) < 2]


@pytest.mark.parametrize("rule", range(1, 17))
def test_rules_covered(rule: int) -> None:
    """Each rule of log triage has a case that follows from it."""
    assert any(str(rule) in re.findall(r"\d+", case.rule.partition(":")[0]) for case in CASES.values())


def _verify(folder: Path, citation: Citation) -> None:
    """The cited file and line exist, and quoted words stand there or in the lines that continue it."""
    path = folder / str(citation.file)
    assert path.is_file(), citation
    if citation.line is None:
        return
    rows = path.read_bytes().decode(errors="replace").split("\n")
    assert 1 <= citation.line <= len(rows), citation
    assert rows[citation.line - 1].strip(), f"{citation} cites an empty line"
    record = _plain(" ".join(rows[citation.line - 1 : citation.line + 24]))
    for quoted in QUOTED.findall(citation.says):
        words = _plain("".join(quoted)).rstrip(".").rstrip("…")
        assert words in record, f"{citation} quotes {words!r}"


def _plain(text: str) -> str:
    """Words without colours and spaces: a terminal's wrapping breaks both."""
    return re.sub(r"\s+", "", COLOUR.sub("", text))
