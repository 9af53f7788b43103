"""The wheel carries the drills, and the worker toolkit stays inert outside a harness."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.ranks
def test_the_wheel_works_from_any_folder(tmp_path: Path) -> None:
    """`pip install .` gives drills and a command that finds them, with no checkout near."""
    subprocess.run(
        (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(ROOT)),
        check=True,
    )
    (wheel,) = tmp_path.glob("drill_harness-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert "harness/builtin/drills/fr_hang.yaml" in names
    assert "harness/builtin/drills/fr_hang.py" in names
    assert any(name.startswith("harness/builtin/checklists/") for name in names)
    assert "harness/catalog/templates/drill.yaml.tmpl" in names

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        (sys.executable, "-m", "harness.cli", "show", "fr_hang"),
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert str(tmp_path / "site" / "harness" / "builtin") in done.stdout.replace("\n", "")


@pytest.mark.ranks
def test_the_script_runs_alone_under_torchrun(tmp_path: Path) -> None:
    """Plain torchrun, no harness: the fault happens, and the worker toolkit leaves nothing."""
    command = (
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--standalone"),
        *(str(ROOT / "drills" / "fr_hang.py"), "--culprit", "1", "--mode", "size"),
    )
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    assert "step 2 done" in done.stdout
    assert "step 3 done" not in done.stdout
    assert "EnforceNotMet" in done.stderr
    assert list(tmp_path.iterdir()) == []
