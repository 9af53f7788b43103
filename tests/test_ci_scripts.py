"""What runs in CI is linted, and its CPU path is run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checklist.made import BAD, GOOD, HEAD, item, prints

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted([*ROOT.glob("ci/*.sh"), ROOT / ".ci" / "run", *ROOT.glob("examples/**/*.sh")])
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found is not None
    return found


def test_shell_scripts_are_linted() -> None:
    """shellcheck has nothing to say of any of them."""
    done = subprocess.run((tool("shellcheck"), *map(str, SCRIPTS)), capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_workflows_are_valid() -> None:
    """By GitHub's own schema."""
    command = (tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS))

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert len(WORKFLOWS) == 2


def test_the_task_prolog_lets_no_task_start_while_the_gate_is_shut(tmp_path: Path) -> None:
    """What is in the way is printed as Slurm wants it; an open gate, or none, says nothing."""
    (tmp_path / "mine.yaml").write_text(HEAD.format(job="cpu") + GOOD)
    environ = {**os.environ, "DRILL": tool("drill"), "PYTHONPATH": str(ROOT)}

    def prolog(**more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            (str(ROOT / "examples" / "slurm-prolog.sh"),),
            env={**environ, **more},
            capture_output=True,
            text=True,
        )

    shut = prolog(DRILL_GATE=str(tmp_path / "mine.yaml"))
    for words in (("run", "mine.yaml"), ("sign", "mine.yaml", "--as", "Ada")):
        subprocess.run(
            (environ["DRILL"], "checklist", *words),
            cwd=tmp_path,
            env=environ,
            check=True,
            capture_output=True,
        )
    opened = prolog(DRILL_GATE=str(tmp_path / "mine.yaml"))

    assert shut.returncode == 1
    assert all(line.startswith("print ") for line in shut.stdout.splitlines())
    assert "print gate closed: mine: 1 in the way" in shut.stdout
    assert (opened.returncode, opened.stdout) == (0, "")
    assert (prolog().returncode, prolog().stdout) == (0, "")


def nightly(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        (str(ROOT / "ci" / "nightly.sh"), *arguments),
        cwd=ROOT,
        env={**environ, "PYTHON": sys.executable, "DRILL_NPROC": "3"},
        capture_output=True,
        text=True,
        timeout=150,
    )


@pytest.mark.ranks
def test_the_nightly_run_on_cpus(tmp_path: Path) -> None:
    """A drill and a checklist for real: results are there, a failure is the text of an issue, exit code 1."""
    hostile = item("hostile", prints({"a": 1, "says": "````</b> @everyone"}, "a == 2"))
    (tmp_path / "mine.yaml").write_text(HEAD.format(job="cpu") + GOOD + BAD + hostile)
    out = tmp_path / "out"

    done = nightly(
        tmp_path,
        *("--drill", "control", "--out", str(out), "--checklist", str(tmp_path / "mine.yaml")),
    )

    assert done.returncode == 1, done.stderr
    assert "the text of an issue is in" in done.stderr
    there = {path.name for path in out.iterdir()}
    assert there >= {
        "doctor.json",
        "drills.xml",
        "checklist.xml",
        "checklist.md",
        "checklist.html",
        "issue.md",
    }
    text = (out / "issue.md").read_text()
    assert "## drills: 0 of 1 failed, 0 skipped" in text
    assert "## checklist: 2 of 3 failed, 0 skipped" in text
    assert "rate 0.5; wanted: rate >= 0.95" in text
    assert list((out / "runs").glob("*-control/verdict.json"))


def test_a_night_in_which_nothing_ran_has_not_passed(tmp_path: Path) -> None:
    """All drills were skipped, as on a machine whose cards have gone: exit code 1, and the issue says why."""
    (tmp_path / "mine.yaml").write_text(HEAD.format(job="cpu") + GOOD)
    out = tmp_path / "out"

    done = nightly(
        tmp_path,
        *("--drill", "fr_hang", "--mode", "skip", "--backend", "nccl", "--out", str(out)),
        *("--checklist", str(tmp_path / "mine.yaml")),
    )

    assert done.returncode == 1, done.stdout
    assert "nightly: nothing ran: " in done.stderr
    assert "Nothing ran: " in (out / "issue.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--colour", "x"), "unknown option --colour"),
        (("--out",), "--out needs a value"),
        (("--checklist", "none.yaml"), "none.yaml: no such file"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, one line."""
    done = nightly(tmp_path, *arguments)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
