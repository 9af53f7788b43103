"""ci/gpu_check.sh on a machine without a card: the same script, the same order, gloo."""

import json
import os
import platform
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.gpucheck.worth import FIRST, chosen, in_order
from harness.model.errors import UsageError
from harness.observe.machine import look

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "ci" / "gpu_check.sh"

NO_CARD = pytest.mark.skipif(look().gpus > 0, reason="with a card it does more, and takes longer")


def check(
    out: Path, *words: str, python: str = sys.executable, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the script as a person does, from elsewhere."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    command = ("sh", str(SCRIPT), "--python", python, "--out", str(out), *words)
    return subprocess.run(command, cwd=out.parent, env=given, capture_output=True, text=True, timeout=170)


def write_drill(folder: Path, name: str, kind: str) -> None:
    """A healthy job of two ranks that must be diagnosed as `kind`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(
        "import argparse\n"
        "from harness.worker import Session\n"
        "p = argparse.ArgumentParser(); p.add_argument('--backend'); a = p.parse_args()\n"
        "with Session.join(a.backend) as session:\n"
        "    for step in session.steps(3): pass\n"
    )
    (folder / f"{name}.yaml").write_text(
        f"name: {name}\nsummary: s\nscript: {name}.py\nmode: none\nnproc: 2\n"
        f"modes: {{none: {{summary: n, expect: {{kind: {kind}, accused: nobody}}}}}}\n"
    )


def test_the_most_valuable_comes_first() -> None:
    """Modes of a hang and the watchdog's chain before faults of the device, then all other drills once."""
    names = [w.name for w in in_order()]

    assert names[:3] == ["fr_hang-size", "fr_hang-skip", "fr_hang-skip-watchdog"]
    places = [names.index(n) for n in ("item_stall-item", "fragmentation-split", "slow_rank-device")]
    assert places == sorted(places)
    assert len(names) == len(set(names))
    assert {"branch-bad_sample", "p2p-missing"} <= set(names[len(FIRST) :])
    assert [w.name for w in chosen(["killed_rank", "fr_hang-skip"])] == [
        "fr_hang-skip",
        "killed_rank-sigkill",
        "killed_rank-device_oom",
    ]
    with pytest.raises(UsageError):
        chosen(["nosuch"])


@NO_CARD
@pytest.mark.ranks
def test_it_brings_back_what_can_be_diagnosed_and_goes_on_after_a_failure(tmp_path: Path) -> None:
    """What fits is run, whatever the run before came to; what needs a card is left out with its reason."""
    out = tmp_path / "out"
    write_drill(out / "drills", "a_wrong", "rank_exited")
    write_drill(out / "drills", "b_right", "healthy")
    wanted = "fr_hang-size,fr_hang-skip-watchdog,killed_rank-device_oom,a_wrong,b_right"
    done = check(out, "--budget", "150", "--nproc", "3", "--only", wanted)

    log = (out / "check.log").read_text()
    assert done.returncode == 3, (done.stdout, done.stderr, log)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["schema"] == "drill/gpu-check/1"
    assert summary["machine"]["gpus"] == 0
    assert [(r["name"], r["verdict"], r["backend"]) for r in summary["runs"]] == [
        ("fr_hang-size", "pass", "gloo"),
        ("a_wrong-none", "inconclusive", "gloo"),
        ("b_right-none", "pass", "gloo"),
    ]
    first, wrong, _ = summary["runs"]
    assert (first["kind"], first["culprits"]) == ("collective_size_mismatch", [2])
    assert wrong["failing"]
    assert "gloo has no watchdog" in summary["left_out"]["fr_hang-skip-watchdog"]
    assert "no GPU on this machine" in summary["left_out"]["killed_rank-device_oom"]
    assert "PASS          fr_hang-size" in done.stdout
    with tarfile.open(out / first["archive"]) as tar:
        tar.extractall(tmp_path / "back", filter="data")
    bundle = tmp_path / "back" / "bundle"
    assert diagnose(bundle).diagnosis.culprits == (2,)
    if len(platform.node()) >= 4:
        everything = b"".join(p.read_bytes() for p in bundle.rglob("*") if p.is_file())
        assert platform.node().encode() not in everything + (out / "summary.json").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--budget",), 2, "--budget wants a value"),
        (("--fast", "1"), 2, "--fast: allowed are"),
        (("--wheels", "/nowhere"), 4, "/nowhere: no requirements.txt"),
        (("--only", "nosuch"), 2, "no drill is called 'nosuch'"),
    ],
)
def test_mistakes_are_said_in_a_line(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    """Nothing is run."""
    done = check(tmp_path / "out", *words)

    assert done.returncode == code
    assert says in done.stderr
    assert not (tmp_path / "out" / "summary.json").exists()


def test_a_python_without_torch_is_refused(tmp_path: Path) -> None:
    """Exit code 4: torch is the machine's own, and is never installed."""
    done = check(tmp_path / "out", python="/bin/false", PATH="/usr/bin:/bin", PYTHONPATH="")

    assert done.returncode == 4 or look().torch is None
    assert "no Python with torch here" in done.stderr


@pytest.mark.sweep
def test_without_what_it_needs_it_says_which(tmp_path: Path) -> None:
    """A folder of wheels that lacks what is needed: each by its name; no time for a run is exit code 4."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "requirements.txt").write_text("no-such-package>=1.0\nclick>=99\n")
    done = check(tmp_path / "out", "--wheels", str(wheels), "--budget", "1", "--only", "control")

    assert done.returncode == 4
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["without"] == [
        "no-such-package",
        "click",
    ]
    assert "without       no-such-package" in done.stdout
    assert "without       click" in done.stdout
    assert not (tmp_path / "out" / ".site").exists()


OF_TORCH = (
    *("torch", "torchgen", "functorch", "sympy", "mpmath", "networkx", "filelock", "fsspec", "jinja2"),
    *("markupsafe", "typing_extensions", "numpy", "isympy", "setuptools"),
)


@NO_CARD
@pytest.mark.sweep
@pytest.mark.ranks
def test_a_fresh_environment_filled_only_from_a_folder(tmp_path: Path) -> None:
    """Torch and nothing of ours, no network, no checkout: the folder of wheels is all it gets."""
    wheels = tmp_path / "wheels"
    subprocess.run((sys.executable, str(ROOT / "ci" / "wheels.py"), str(wheels)), check=True, timeout=300)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for packages in {Path(p) for p in sys.path if p.endswith("site-packages")}:
        for entry in packages.iterdir():
            name = entry.name.lower().replace("-", "_")
            if any(name == own or name.startswith((f"{own}_", f"{own}.")) for own in OF_TORCH) or any(
                name.startswith(f"{own}-") or name.split("-")[0] == own for own in OF_TORCH
            ):
                (theirs / entry.name).symlink_to(entry)
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    (packages,) = (tmp_path / "fresh").glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text(f"{theirs}\n")
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("gpu_check.sh", "install_missing.py"):
        (alone / name).write_bytes((ROOT / "ci" / name).read_bytes())
    command = ("sh", str(alone / "gpu_check.sh"), "--python", str(python), "--wheels", str(wheels))
    words = (
        "--out",
        str(tmp_path / "out"),
        "--budget",
        "120",
        "--nproc",
        "3",
        "--only",
        "fr_hang-size,item_stall",
    )
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    env["https_proxy"] = env["http_proxy"]
    done = subprocess.run(
        (*command, *words), env=env, cwd=tmp_path, capture_output=True, text=True, timeout=400
    )

    log = (tmp_path / "out" / "install.log").read_text()
    assert done.returncode == 0, (done.stdout, done.stderr, log)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [(r["name"], r["verdict"]) for r in summary["runs"]] == [
        ("fr_hang-size", "pass"),
        ("item_stall-item", "pass"),
    ]
    assert summary["without"] == []
    assert not any("py-spy" in line for line in summary["machine"]["doctor"])
    left = {p.name for p in packages.iterdir()}
    assert not any(name.startswith(("harness", "drill_harness", "pydantic")) for name in left)
