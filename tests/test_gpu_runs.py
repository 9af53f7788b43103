"""docs/gpu-runs.md is true: every drill and mode has its row, and no card is claimed without its bundle."""

import json
import re
import tarfile
from pathlib import Path

import pytest

from harness.catalog.find import builtin
from harness.catalog.schema import read_drill
from harness.diagnose.api import diagnose
from tests.corpus.adopt import adopt

PAGE = Path(__file__).parent.parent / "docs" / "gpu-runs.md"
CORPUS = Path(__file__).parent / "corpus" / "nccl"
NOT_YET = "not yet run"

_ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_DATED = re.compile(r"^\d{4}-\d\d-\d\d, torch \d+\.\d+\.\d+")

STORED = json.loads((CORPUS / "answers.json").read_text()) if (CORPUS / "answers.json").exists() else {}


def rows() -> dict[tuple[str, str], tuple[str, str, str]]:
    """The table: (drill, mode) to what is said of gloo, of one shared card, of eight."""
    found = {}
    for name, mode, *cells in _ROW.findall(PAGE.read_text(encoding="utf-8")):
        assert (name, mode) not in found, f"two rows of {name} {mode}"
        found[name, mode] = tuple(cell.strip() for cell in cells)
    return found


def test_every_drill_and_mode_has_its_row_and_no_other() -> None:
    """A new drill without a row, or a row without its drill, fails here."""
    specs = [read_drill(path) for path in builtin("drills").glob("*.yaml")]

    assert set(rows()) == {(spec.name, mode) for spec in specs for mode in spec.modes}


def test_what_cannot_run_somewhere_does_not_claim_to() -> None:
    """Modes that need a card never ran on gloo; drills for gloo only never on NCCL."""
    for path in builtin("drills").glob("*.yaml"):
        spec = read_drill(path)
        for mode in spec.modes.values():
            gloo, one, eight = rows()[spec.name, mode.name]
            assert (gloo == "needs a card") == ("gpu" in mode.needs)
            assert gloo == "needs a card" or _DATED.match(gloo), (spec.name, gloo)
            assert ({one, eight} == {"gloo only"}) == ("nccl" not in spec.backends), spec.name


def test_a_card_is_claimed_only_with_its_bundle() -> None:
    """A date under a card needs the recorded bundle of that very drill, mode and arrangement."""
    for (name, mode), (_, one, eight) in rows().items():
        for cell, shared in ((one, True), (eight, False)):
            if cell in (NOT_YET, "gloo only"):
                continue
            stored = STORED.get(f"{name}-{mode}")
            assert stored is not None, f"{name} {mode}: {cell}, and no bundle in {CORPUS}"
            assert stored["shared"] is shared
            assert cell.startswith(stored["at"])


@pytest.mark.parametrize("name", sorted(STORED) or [pytest.param("", marks=pytest.mark.skip("no card yet"))])
def test_recorded_runs_on_nccl_are_diagnosed_again(tmp_path: Path, name: str) -> None:
    """The same answer from the bundle alone, without a card and without what would give it away."""
    with tarfile.open(CORPUS / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = diagnose(tmp_path / "bundle").diagnosis

    answer = STORED[name]
    assert (found.kind.value, list(found.culprits)) == (answer["kind"], answer["culprits"])
    assert (list(found.suspects), found.where.site) == (answer["suspects"], answer["site"])


def test_what_comes_back_becomes_the_corpus_without_its_answers(tmp_path: Path) -> None:
    """Only what passed on that back end; answers go into one file, and out of the bundle."""
    out, into = tmp_path / "out", tmp_path / "nccl"
    (out / "bundles").mkdir(parents=True)
    diagnosis = {"kind": "rank_stalled", "culprits": [5], "suspects": [], "where": {"site": "item_sync"}}
    for name in ("one", "two", "three"):
        bundle = tmp_path / name
        bundle.mkdir()
        (bundle / "run.json").write_text("{}")
        (bundle / "bundle.json").write_text("{}")
        (bundle / "diagnosis.json").write_text(json.dumps(diagnosis))
        with tarfile.open(out / "bundles" / f"{name}.tar.gz", "w:gz") as tar:
            tar.add(bundle, "bundle")
    runs = [
        {"name": name, "backend": backend, "verdict": verdict, "archive": f"bundles/{name}.tar.gz"}
        for name, backend, verdict in (
            ("one", "nccl", "pass"),
            ("two", "nccl", "fail"),
            ("three", "gloo", "pass"),
        )
    ]
    machine = {"torch": "2.13.0+cu130", "nccl": "2.29.7", "cards": ["NVIDIA H200"]}
    summary = {"at": "2026-12-24", "machine": machine, "runs": [{**r, "shared_gpu": True} for r in runs]}
    (out / "summary.json").write_text(json.dumps(summary))

    assert adopt(out, into) == ["one"]
    assert sorted(p.name for p in into.iterdir()) == ["answers.json", "one.tar.gz"]
    answers = json.loads((into / "answers.json").read_text())
    assert (answers["one"]["kind"], answers["one"]["shared"]) == ("rank_stalled", True)
    with tarfile.open(into / "one.tar.gz") as tar:
        assert [m.name for m in tar if m.isfile()] == ["bundle/bundle.json"]
