"""The pytest plugin: checklists and drills as tests, in a pytest of their own."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.checklist.made import BAD, GOOD, HEAD, PERSON, item, prints

OPEN = item("open", prints({"other": 1}, "rate >= 0.95"))


def run_pytest(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--junitxml",
        "junit.xml",
        *arguments,
    )
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=150)


def cases(folder: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """From the JUnit file: each test's outcome and properties."""
    found = {}
    for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        properties = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        found[case.get("name", "")] = (kinds[0] if kinds else "passed", properties)
    return found


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_checklist_is_a_file_of_tests(tmp_path: Path, workers: str) -> None:
    """Failed fails, inconclusive is an error, what waits for a person is skipped; with workers, too."""
    (tmp_path / "runbook.md").write_text("what to do")
    (tmp_path / "mine.yaml").write_text(HEAD.format(job="cpu") + GOOD + BAD + OPEN + PERSON)
    (tmp_path / "other.yaml").write_text("a: 1\n")

    done = run_pytest(tmp_path, "mine.yaml", "-n", workers)

    assert done.returncode == 1, done.stdout
    found = cases(tmp_path)
    assert {name: kind for name, (kind, _) in found.items()} == {
        "good": "passed",
        "bad": "failure",
        "open": "error",
        "person": "skipped",
    }
    assert Path(found["bad"][1]["bundle"]).is_dir()
    assert found["bad"][1]["why"] == "rate 0.5; wanted: rate >= 0.95"
    assert "The bad: rate 0.5; wanted: rate >= 0.95" in done.stdout
    assert "pytest_plugin.py" not in done.stdout
    stored = list((tmp_path / "runs" / "checklists" / "mine").glob("*-run.json"))
    assert len(stored) == 4


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """A YAML that is no checklist, a checklist that nobody named, and one that does not validate."""
    (tmp_path / "mine.yaml").write_text(HEAD.format(job="cpu") + GOOD)
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    (tmp_path / "broken.yaml").write_text("schema: drill/checklist-file/1\nname: x\n")

    everything = run_pytest(tmp_path)
    broken = run_pytest(tmp_path, "broken.yaml")

    assert (everything.returncode, "1 passed" in everything.stdout) == (0, True)
    assert broken.returncode == 2
    assert "broken.yaml:1: items: Field required" in broken.stdout


@pytest.mark.ranks
def test_a_drill_for_each_culprit(tmp_path: Path) -> None:
    """Under xdist, and yet one after the other; the bundle stands in the JUnit file."""
    (tmp_path / "test_x.py").write_text("def test_x(): assert False\n")
    (tmp_path / "drill.toml").write_text("nproc = 3\n[drills.fr_hang]\nnumel = 1024\n")

    done = run_pytest(tmp_path, "--drill", "fr_hang", "--drill-culprit", "0,2", "-n", "2")

    assert done.returncode == 0, done.stdout
    found = cases(tmp_path)
    assert sorted(found) == ["fr_hang[size-0]", "fr_hang[size-2]"]
    for rank in (0, 2):
        kind, properties = found[f"fr_hang[size-{rank}]"]
        assert (kind, properties["verdict"]) == ("passed", "pass")
        diagnosis = json.loads((tmp_path / properties["bundle"] / "diagnosis.json").read_text())
        assert diagnosis["culprits"] == [rank]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--drill", "no_such"), "no drill is called 'no_such'"),
        (("--drill", "fr_hang", "--drill-env-file", "none.env"), "none.env: no such file"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """One line, no traceback of ours."""
    done = run_pytest(tmp_path, *arguments)

    assert done.returncode in (1, 4)
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout
