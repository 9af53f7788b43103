"""`drill new`: what it writes passes as it is, and nothing of anybody's is ever overwritten."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.catalog.find import find_drill

DRILL = (sys.executable, "-m", "harness.cli")
WRITTEN = ("drills/late_shard.py", "drills/late_shard.yaml", "tests/test_drill_late_shard.py")


def new(name: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """`drill new NAME` in a folder."""
    return subprocess.run((*DRILL, "new", name), cwd=cwd, capture_output=True, text=True)


def files(folder: Path) -> list[str]:
    """Every file under a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.ranks
def test_the_scaffold_passes_as_it_is(tmp_path: Path, tag: str) -> None:
    """Its spec is valid, and its generated test runs the drill and passes, from another folder too."""
    done = new("late_shard", tmp_path)

    assert done.returncode == 0, done.stderr
    assert files(tmp_path) == list(WRITTEN)
    assert all(name in done.stdout for name in WRITTEN)
    assert "drill run late_shard" in done.stdout
    spec = find_drill("late_shard", [tmp_path / "drills"])
    assert (spec.nproc, spec.culprit) == (4, (2,))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")
    tested = subprocess.run(
        (*command, str(tmp_path / WRITTEN[2])), cwd=elsewhere, capture_output=True, text=True, timeout=100
    )
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout


@pytest.mark.parametrize("there", WRITTEN)
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    """Exit 2, the file that is in the way is named, and none of the others is written."""
    (tmp_path / there).parent.mkdir()
    (tmp_path / there).symlink_to("nowhere")
    done = new("late_shard", tmp_path)

    assert done.returncode == 2
    assert f"{there} is there already" in done.stderr
    assert (tmp_path / there).readlink() == Path("nowhere")
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Late", "cannot be a drill's name"),
        ("2late", "cannot be a drill's name"),
        ("late-shard", "cannot be a drill's name"),
        ("../late", "cannot be a drill's name"),
        ("late\n", "cannot be a drill's name"),
        ("control", "a drill is called 'control' already"),
        ("random", "'random' is a Python module"),
        ("torch", "'torch' is a Python module"),
    ],
)
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str, says: str) -> None:
    """Exit 2 and the reason; nothing is written."""
    done = new(name, tmp_path)

    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Exit 4 with the path; what was written before it is taken back."""
    (tmp_path / "tests").write_text("a file where the folder should be")
    done = new("late_shard", tmp_path)

    assert done.returncode == 4
    assert "tests" in done.stderr
    assert "Traceback" not in done.stderr
    assert files(tmp_path) == ["tests"]


def test_list_filters_by_tag(tmp_path: Path) -> None:
    """Only the drills with the tag; a tag that no drill has is refused with those that there are."""
    new("late_shard", tmp_path)
    command = (*DRILL, "list", "--tag", "mine")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["late_shard"]

    wrong = subprocess.run((*DRILL, "list", "--tag", "nope"), cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "no drill has it; there are: " in wrong.stderr
