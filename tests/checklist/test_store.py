"""Results on disk: a chain that shows accidents, a lock, and a full disk that loses nothing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.checklist.fingerprint import digest
from harness.checklist.store import Store
from harness.model.checklist import ChecklistRun, Fingerprint, ItemOutcome, ItemResult, SignOff, StepResult
from harness.model.errors import PrerequisiteError

FINGERPRINT = Fingerprint(
    "c" * 64, {"commit": "1"}, {"NCCL_DEBUG": "WARN"}, {}, {"torch": "2.13.0"}, {"gpus": "0"}
)


def run(*ids: str, complete: bool = True) -> ChecklistRun:
    steps = (StepResult("probe x", ItemOutcome.PASS, "ok", {"rate": 0.98, "odd": float("nan"), "n": None}),)
    items = tuple(ItemResult(id_, ItemOutcome.PASS, "ok", steps, 1000.5, 2.25) for id_ in ids)
    return ChecklistRun("mine", FINGERPRINT, 1000.0, "host", items, complete)


def filled(folder: Path, count: int = 3) -> Store:
    store = Store(folder)
    for number in range(count):
        store.folder.mkdir(exist_ok=True)
        store.append(run(f"item{number}"))
    return store


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    """Runs and sign-offs, in order, numbers and missing figures included."""
    store = filled(tmp_path / "s", 2)
    store.append(SignOff("mine", "Ada", 1001.0, "f", {"item0": "d"}), {"kind": "ssh", "text": "sig"})

    chain = store.chain()

    assert chain.broken is None
    assert [entry.number for entry in chain.entries] == [1, 2, 3]
    first, _, last = chain.entries
    assert first.run is not None and first.run.items[0].steps[0].figures == {
        "rate": 0.98,
        "odd": "NaN",
        "n": None,
    }
    assert first.run.fingerprint == FINGERPRINT
    assert last.sign_off is not None and last.sign_off.covers == {"item0": "d"}
    assert last.key_signature == {"kind": "ssh", "text": "sig"}


def edited(path: Path) -> None:
    path.write_text(path.read_text().replace('"pass"', '"rehearsed"', 1))


def edited_with_its_hash(path: Path) -> None:
    document = json.loads(path.read_text())
    document["body"]["host"] = "other"
    document["digest"] = digest(document["body"])
    path.write_text(json.dumps(document, indent=1) + "\n")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    path.write_bytes(path.with_name("0001-run.json").read_bytes())


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_tomorrow(path: Path) -> None:
    document = json.loads(path.read_text())
    document["body"]["schema"] = "drill/checklist-results/99"
    document["digest"] = digest(document["body"])
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "damage", [edited, edited_with_its_hash, truncated, removed, replaced, emptied, of_tomorrow]
)
def test_what_is_older_than_the_damage_does_not_count(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Of three files the second is damaged: the third stands, the first two do not, and why is said."""
    store = filled(tmp_path / "s")
    damage(store.folder / "0002-run.json")

    chain = store.chain()

    assert [entry.number for entry in chain.entries] == [3]
    assert chain.broken is not None and "000" in chain.broken


def test_a_run_after_the_damage_counts_again(tmp_path: Path) -> None:
    """The chain begins anew; nobody has to delete anything."""
    store = filled(tmp_path / "s")
    edited(store.folder / "0003-run.json")
    assert store.chain().entries == ()

    store.append(run("item9"))

    assert [entry.number for entry in store.chain().entries] == [4]


def test_a_damaged_newest_file_leaves_nothing(tmp_path: Path) -> None:
    """Not even what it follows: which of the two is the last word is not known."""
    store = filled(tmp_path / "s")
    truncated(store.folder / "0003-run.json")

    assert store.chain().entries == ()


@pytest.mark.parametrize("lost", [["0003-run.json"], ["0001-run.json", "0002-run.json", "0003-run.json"]])
def test_losing_the_newest_file_shows(tmp_path: Path, lost: list[str]) -> None:
    """What it followed was the last word once, and is not now; a run afterwards counts, and nothing older."""
    store = filled(tmp_path / "s")
    for name in lost:
        (store.folder / name).unlink()

    assert store.chain().entries == ()
    assert store.chain().broken == "the newest file, number 3, is missing"

    store.append(run("item9"))
    assert [entry.number for entry in store.chain().entries] == [4]


@pytest.mark.parametrize(
    "signature", [{"kind": "ssh", "text": 5}, {"kind": "ssh", "text": "\ud800"}, ["ssh"]]
)
def test_a_damaged_signature_is_damage(tmp_path: Path, signature: object) -> None:
    """The file's own hash does not cover the signature: no tool is asked about one that is no text."""
    store = filled(tmp_path / "s", 1)
    path = store.folder / "0001-run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "key_signature": signature}))

    assert store.chain().broken == "0001-run.json: is damaged: truncated, or not written by drill"


def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    """The second is told who is at work; when that process has gone, the lock has, too."""
    store = Store(tmp_path / "s")
    code = (
        "import sys, pathlib; from harness.checklist.store import Store\n"
        "with Store(pathlib.Path(sys.argv[1])).locked(): print('have it', flush=True); input()"
    )
    with subprocess.Popen(
        (sys.executable, "-c", code, str(store.folder)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(PrerequisiteError, match=f"process {other.pid} of"), store.locked():
            pass
        other.kill()
    with store.locked():
        pass


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stored stays as it was, and no half of a file lies about."""
    store = filled(tmp_path / "s", 1)
    entry = store.append(run("a", complete=False))
    before = entry.path.read_bytes()

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        entry.write(run("a", "b"))
    monkeypatch.undo()

    assert entry.path.read_bytes() == before
    assert sorted(path.name for path in store.folder.glob("*run*")) == ["0001-run.json", "0002-run.json"]
    assert len(store.chain().entries) == 2
