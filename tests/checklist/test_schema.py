"""Checklists as people write them: what is wrong is named with file, line, key and what is allowed."""

from pathlib import Path

import pytest

from harness.catalog.find import all_drills
from harness.checklist.schema import find_checklist, is_checklist, read_checklist, seconds
from harness.model.errors import PrerequisiteError, UsageError

ROOT = Path(__file__).parent.parent.parent / "checklists"

HEAD = "schema: drill/checklist-file/1\nname: mine\nitems:\n"
ITEM = "  - id: one\n    title: One\n    does: it\n    criterion: it does\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_ships_is_valid_and_names_real_drills(path: Path) -> None:
    """Every drill and mode exists; every item says what it does, what passes, and whose word that is."""
    drills = {spec.name: spec for spec in all_drills()}

    checklist = read_checklist(path)

    assert checklist.name == path.stem
    assert is_checklist(path)
    for item in checklist.items:
        assert item.does and item.criterion and item.source
        for step in item.steps:
            for one in (step, step.rehearsal) if step.rehearsal else (step,):
                if one.kind == "drill":
                    assert one.name in drills
                    assert one.mode is None or one.mode in drills[one.name].modes


def test_the_seeds_thirteen_items_are_there() -> None:
    """All thirteen, each rehearsed where it needs GPUs, on a person's word where only a person can say it."""
    checklist = read_checklist(ROOT / "pretrain.yaml")

    assert [item.id for item in checklist.items] == [
        *("hardware", "bandwidth", "clocks", "memory", "baseline", "checkpoint", "reshard", "faults"),
        *("flight_recorder", "metrics", "logs", "configuration", "on_call"),
    ]
    assert checklist.job == "gpu"
    assert all(step.rehearsal for item in checklist.items if item.needs for step in item.steps)
    assert [item.id for item in checklist.items if item.manual] == ["on_call"]
    assert {item.id for item in checklist.items if item.valid_s == 86400} >= {
        "hardware",
        "bandwidth",
        "clocks",
    }


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (HEAD + ITEM + "    steps:\n      - drill: fr_hang\n        mod: skip\n", 10, "unknown key; allowed"),
        (
            HEAD + ITEM + "    steps:\n      - probe: memroy\n        pass: errors == 0\n",
            9,
            "there is no 'memroy'",
        ),
        (
            HEAD + ITEM + "    steps:\n      - probe: memory\n        pass: eror == 0\n",
            10,
            "does not measure eror",
        ),
        (
            HEAD + ITEM + "    steps:\n      - probe: memory\n        pass: open(1)\n",
            10,
            "only functions are",
        ),
        (
            HEAD
            + ITEM
            + "    steps:\n      - probe: memory\n        with: {mb: 1}\n        pass: errors == 0\n",
            10,
            "no such option; it has: mib, rounds, broken",
        ),
        (
            HEAD
            + ITEM
            + "    steps:\n      - probe: memory\n        with: {mib: x}\n        pass: errors == 0\n",
            10,
            "allowed is a value of type int",
        ),
        (HEAD + ITEM + "    steps:\n      - command: [ls]\n", 9, "needs 'pass'"),
        (HEAD + ITEM + "    steps:\n      - drill: fr_hang\n        probe: memory\n", 9, "exactly one of"),
        (HEAD + ITEM + "    steps: []\n", 8, "at least 1 item"),
        (HEAD + ITEM + "    valid_for: soon\n    steps: [{drill: control}]\n", 8, "valid_for"),
        (HEAD + ITEM + "    needs: tpu\n    steps: [{drill: control}]\n", 8, "'gpu' or 'gpus'"),
        (HEAD + (ITEM + "    steps: [{drill: control}]\n") * 2, 9, "is there already, in line 4"),
        ("schema: drill/checklist-file/2\nname: mine\nitems: []\n", 1, "drill/checklist-file/1"),
        (
            HEAD + ITEM + "    steps:\n      - drill: control\n        rehearsal: {mode: x}\n",
            10,
            "never rehearsed",
        ),
        (
            HEAD + ITEM + "    steps:\n      - command: [ls]\n        pass: a == 1\n        pass: a > 0\n",
            11,
            "pass: there already, in line 10",
        ),
        (
            HEAD + ITEM + '    steps:\n      - command: [ls, "a\\0"]\n        pass: a == 1\n',
            9,
            "should match pattern",
        ),
        (
            HEAD + ITEM + "    steps:\n      - drill: control\n        timeout: 1s\n",
            9,
            "'timeout' and 'show' are",
        ),
        (
            HEAD
            + ITEM
            + "    needs: gpu\n    steps:\n      - drill: control\n        rehearsal: {pass: a > 1}\n",
            10,
            "rehearsal: 'pass' is not for a drill",
        ),
        ("- just\n- a list\n", 1, "the document"),
        ("a: [1\n", None, "not YAML"),
        ("\t\n", None, "not YAML"),
        ("", 1, "the document"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    """One line: where, and what is allowed."""
    path = write(tmp_path, text)

    with pytest.raises(UsageError) as error:
        read_checklist(path)

    message = str(error.value)
    assert said in message
    assert "\n" not in message
    assert message.startswith(f"{path}:{line}:" if line else f"{path}:"), message


def test_a_bare_name_is_one_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless there is such a file here."""
    monkeypatch.chdir(tmp_path)
    assert find_checklist(Path("smoke")) == ROOT / "smoke.yaml"
    assert find_checklist(Path("none")) == Path("none")
    Path("smoke").touch()
    assert find_checklist(Path("smoke")) == Path("smoke")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is a missing prerequisite, a binary one no checklist."""
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(PrerequisiteError, match="No such file"):
        read_checklist(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="UTF-8"):
        read_checklist(tmp_path / "binary.yaml")
    assert not is_checklist(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("text", "expected"), [("90m", 5400), ("24h", 86400), ("7d", 604800), ("1.5h", 5400)]
)
def test_durations(text: str, expected: float) -> None:
    """As people write them."""
    assert seconds(text) == expected
