"""What bad input and bad luck get: one message, the right exit code, and no rank left."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import heed_signals, survivors, tagged

DRILL = (sys.executable, "-m", "harness.cli")


def run(*args: str, cwd: Path, **kwargs: object) -> "subprocess.CompletedProcess[str]":
    """One `drill` command in a folder of its own."""
    return subprocess.run(
        (*DRILL, *args),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        **kwargs,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("run", "fr_hagn"), "Did you mean 'fr_hang'?"),
        (("run", "fr_hang", "--mode", "sise"), "it has: size, size_more, skip, dtype, type, extra"),
        (("run", "fr_hang", "--set", "hangat=3"), "it has: hang_at, steps, numel"),
        (("run", "fr_hang", "--set", "hang_at=soon"), "allowed is a value of type int"),
        (("run", "fr_hang", "--set", "hang_at=-1"), "at least 0"),
        (("run", "fr_hang", "--set", "hang_at"), "key=value"),
        (("run", "fr_hang", "--culprit", "8"), "with 8 ranks 0-7 are allowed"),
        (("run", "fr_hang", "--culprit", "five"), "not a rank"),
        (("run", "fr_hang", "--culprit", "0-3"), "nobody could tell"),
        (("run", "control", "--culprit", "1"), "breaks no rank"),
        (("run", "fr_hang", "--backend", "mpi"), "allowed are auto, gloo, nccl"),
        (("run",), "name the drills to run"),
        (("show", "nothing"), "no drill is called 'nothing'. There are: "),
        (("run", "fr_hang", "--drills-dir", "nowhere"), "not a folder"),
    ],
)
def test_usage_errors_are_one_message(tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    """Exit 2, what is wrong and what is allowed, never a traceback."""
    done = run(*args, cwd=tmp_path)

    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour: red\n", "unknown key; allowed here: name, summary, script"),
        ("nproc: many\n", "nproc: "),
        ("modes: {a: {summary: s, expect: {kind: gremlins}}}\n", "modes.a.expect.kind: "),
        ("mode: b\n", "mode 'b' is not among modes: a"),
        (": : :\n", "not YAML"),
    ],
)
def test_a_broken_spec_names_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    """A user's own drill with a mistake in it: exit 2, with its path, the key and what is allowed."""
    drills = tmp_path / "drills"
    drills.mkdir()
    (drills / "mine.py").write_text("")
    base = {
        "name": "name: mine\n",
        "summary": "summary: s\n",
        "script": "script: mine.py\n",
        "mode": "mode: a\n",
        "modes": "modes: {a: {summary: s, expect: {kind: healthy}}}\n",
    }
    base.pop(text.partition(":")[0], None)
    (drills / "mine.yaml").write_text("".join(base.values()) + text)

    done = run("run", "mine", cwd=tmp_path)

    assert done.returncode == 2, done.stderr
    assert "drills/mine.yaml" in done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_two_drills_of_one_name_are_an_error_but_a_copy_is_not(tmp_path: Path) -> None:
    """The built-in drills copied into ./drills stay usable; a changed copy is refused by name."""
    from harness.catalog.find import builtin

    drills = tmp_path / "drills"
    drills.mkdir()
    for name in ("control.yaml", "control.py"):
        (drills / name).write_bytes((builtin("drills") / name).read_bytes())
    assert run("show", "control", cwd=tmp_path).returncode == 0

    with (drills / "control.py").open("a") as file:
        file.write("# changed\n")
    done = run("show", "control", cwd=tmp_path)

    assert done.returncode == 2
    assert "two drills are called 'control'" in done.stderr


def test_nccl_without_gpus_is_a_missing_prerequisite(tmp_path: Path) -> None:
    """Exit 4 with the number of GPUs that are there."""
    from harness.observe.gpus import gpu_count

    if gpu_count() >= 8:
        pytest.skip("this machine has the GPUs")
    done = run("run", "fr_hang", "--backend", "nccl", cwd=tmp_path)

    assert done.returncode == 4
    assert f"this machine has {gpu_count()}" in done.stderr


def test_an_unwritable_out_stops_before_anything_starts(tmp_path: Path, tag: str) -> None:
    """Exit 4, before a launcher exists. /proc refuses even root."""
    started = time.monotonic()
    done = run("run", "control", "--out", "/proc/nowhere", cwd=tmp_path)

    assert done.returncode == 4
    assert "--out" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [p for p in tagged(tag) if "harness.launch" in " ".join(p.cmdline())]
    assert time.monotonic() - started < 60


def _wait_until(condition: object, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.02)


def _start(tmp_path: Path, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (*DRILL, "run", "fr_hang", "--mode", "skip", "--out", "runs", *args),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_signals,
    )


MOMENTS = {
    "importing": lambda root: any(root.glob("runs/*/bundle.json")),
    "launched": lambda root: any(root.glob("runs/*/launcher.json")),
    "stepping": lambda root: any(root.glob("runs/*/signals/attempt_0/rank_0.jsonl")),
    "hanging": lambda root: any(
        path.read_text().count("\n") >= 4 for path in root.glob("runs/*/signals/attempt_0/rank_5.jsonl")
    ),
}


IN_EVERY_RUN = {("hanging", signal.SIGKILL), ("stepping", signal.SIGTERM), ("launched", signal.SIGINT)}
"""Each signal and most moments once; the rest is for the sweep."""

ENDS = [
    pytest.param(
        moment,
        signum,
        id=f"{moment}-{signum.name}",
        marks=[] if (moment, signum) in IN_EVERY_RUN else [pytest.mark.sweep],
    )
    for moment in MOMENTS
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
]


@pytest.mark.ranks
@pytest.mark.parametrize(("moment", "signum"), ENDS)
def test_no_rank_outlives_the_harness(tmp_path: Path, tag: str, moment: str, signum: signal.Signals) -> None:
    """Whatever ends the harness, whenever: two seconds later no process is left, the bundle readable."""
    process = _start(tmp_path)
    _wait_until(lambda: MOMENTS[moment](tmp_path))

    process.send_signal(signum)
    _, err = process.communicate(timeout=20)

    assert not survivors(tag)
    (bundle,) = (p for p in (tmp_path / "runs").iterdir() if not p.is_symlink())
    json.loads((bundle / "bundle.json").read_text())
    if signum is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130, err
        assert str(bundle.name) in err
        assert "Traceback" not in err


@pytest.mark.ranks
def test_a_rank_that_dies_before_joining_is_diagnosed(tmp_path: Path, tag: str) -> None:
    """Its peers wait in joining; the run does not wait for the end of time, and names the dead rank."""
    drills = tmp_path / "drills"
    drills.mkdir()
    (drills / "stillborn.yaml").write_text(
        "name: stillborn\nsummary: one rank dies before it joins\nscript: stillborn.py\n"
        "nproc: 4\nculprit: [2]\nmode: code\n"
        "modes:\n"
        "  code: {summary: exits with a code, expect: {kind: rank_exited, how: exit_code}}\n"
        "  error: {summary: raises, expect: {kind: software_error}}\n"
    )
    (drills / "stillborn.py").write_text(
        "import argparse, os, sys\n"
        "from harness.worker import Session\n"
        "from harness.worker.environment import RankEnvironment\n"
        "from harness.worker.faults import Fault\n"
        "p = argparse.ArgumentParser(); p.add_argument('--culprit', type=int)\n"
        "p.add_argument('--mode'); p.add_argument('--backend'); a = p.parse_args()\n"
        "fault = Fault('dies', (a.culprit,), 0, RankEnvironment.read())\n"
        "if fault.active:\n"
        "    fault.fire()\n"
        "    if a.mode == 'error': raise ValueError('no such shard: 17')\n"
        "    os._exit(7)\n"
        "with Session.join(a.backend):\n"
        "    pass\n"
    )
    for mode, kind in (("code", "rank_exited"), ("error", "software_error")):
        done = run("run", "stillborn", "--mode", mode, "--json", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        diagnosis = json.loads(done.stdout)["diagnosis"]
        assert (diagnosis["kind"], diagnosis["culprits"]) == (kind, [2])
        assert "before it joined" in diagnosis["summary"]


@pytest.mark.ranks
def test_timeout_bounds_a_run(tmp_path: Path, tag: str) -> None:
    """A run that cannot end by itself ends at --timeout, as inconclusive, with what it had."""
    drills = tmp_path / "drills"
    drills.mkdir()
    (drills / "slow.yaml").write_text(
        "name: slow\nsummary: steps for ever\nscript: slow.py\nnproc: 2\nmode: a\n"
        "modes: {a: {summary: s, expect: {kind: healthy, accused: nobody}}}\n"
    )
    (drills / "slow.py").write_text(
        "import time\nfrom harness.worker import Session\n"
        "with Session.join() as session:\n"
        "    for step in session.steps(10**6): time.sleep(0.05)\n"
    )
    started = time.monotonic()
    done = run("run", "slow", "--timeout", "6", cwd=tmp_path)

    assert done.returncode == 3, done.stdout
    assert "still running after" in done.stderr
    assert time.monotonic() - started < 30


@pytest.mark.ranks
def test_two_runs_at_once_do_not_meet(tmp_path: Path, tag: str) -> None:
    """Two harnesses on one machine, different culprits: each finds its own."""
    runs = [
        subprocess.Popen(
            (
                *DRILL,
                "run",
                "fr_hang",
                "--mode",
                "type",
                "--culprit",
                rank,
                "--json",
                "--out",
                rank,
            ),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in ("2", "6")
    ]
    documents = [json.loads(process.communicate(timeout=100)[0]) for process in runs]

    assert [d["diagnosis"]["culprits"] for d in documents] == [[2], [6]]
    assert [process.returncode for process in runs] == [0, 0]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> "os.PathLike[str]":
    """A file system of 256 KiB, where mounting is permitted."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)), capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    yield folder  # type: ignore[misc]
    subprocess.run(("umount", "-l", str(folder)), check=True)


@pytest.mark.ranks
def test_a_full_disk_is_said_and_inconclusive(tmp_path: Path, tag: str, tiny_disk: Path) -> None:
    """The disk fills while ranks run: the verdict is inconclusive, the reason given, no traceback."""
    (tiny_disk / "ballast").write_bytes(b"x" * 150_000)
    done = run("run", "fr_hang", "--mode", "skip", "--out", str(tiny_disk / "runs"), cwd=tmp_path)

    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "No space left on device" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.ranks
def test_a_read_only_out_is_refused(tmp_path: Path, tiny_disk: Path) -> None:
    """A read-only mount refuses even root: exit 4 before anything starts."""
    subprocess.run(("mount", "-o", "remount,ro", str(tiny_disk)), check=True)
    done = run("run", "control", "--out", str(tiny_disk / "runs"), cwd=tmp_path)

    assert done.returncode == 4
    assert "Read-only file system" in done.stderr


@pytest.mark.ranks
def test_without_py_spy_the_run_goes_on(tmp_path: Path, tag: str) -> None:
    """Stacks that cannot be had are written down with the reason; the dumps still convict."""
    prelude = "import harness.observe.stacks as s; s.find_py_spy = lambda: None; "
    code = prelude + "from harness.cli import main; main()"
    args = ("run", "fr_hang", "--mode", "type", "--json", "--out", "runs")
    done = subprocess.run(
        (sys.executable, "-c", code, *args),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )

    document = json.loads(done.stdout)
    assert document["diagnosis"]["culprits"] == [5]
    assert any("py-spy is not installed" in m for m in document["diagnosis"]["missing_evidence"])


@pytest.mark.ranks
def test_full_shared_memory_is_said_and_inconclusive(tmp_path: Path, tag: str) -> None:
    """No semaphore can be made, so no rank starts: exit 3 with the reason, no traceback."""
    script = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && head -c 64k /dev/zero > /dev/shm/x; exec "$@"'
    private = ("unshare", "--mount", "bash", "-c", script, "bash")
    if subprocess.run((*private, "true"), capture_output=True).returncode:
        pytest.skip("mount namespaces are not permitted here")
    done = subprocess.run(
        (*private, *DRILL, "run", "control"), cwd=tmp_path, capture_output=True, text=True, timeout=100
    )

    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "No space left on device" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.ranks
def test_a_slow_step_is_no_stall(tmp_path: Path, tag: str) -> None:
    """Steps that go on while evidence is collected: the watch goes on too, and the run is healthy."""
    drills = tmp_path / "drills"
    drills.mkdir()
    (drills / "lumpy.yaml").write_text(
        "name: lumpy\nsummary: one slow step\nscript: lumpy.py\nnproc: 2\nmode: a\n"
        "modes: {a: {summary: s, expect: {kind: healthy, accused: nobody}}}\n"
    )
    (drills / "lumpy.py").write_text(
        "import time, torch, torch.distributed as dist\nfrom harness.worker import Session\n"
        "with Session.join() as session:\n"
        "    for step in session.steps(12):\n"
        "        dist.all_reduce(torch.ones(1))\n"
        "        time.sleep(2.3 if step == 6 else 0.05)\n"
    )
    done = run("run", "lumpy", "--json", cwd=tmp_path)

    document = json.loads(done.stdout)
    assert document["diagnosis"]["kind"] == "healthy", done.stderr
    events = (tmp_path / document["bundle"] / "events.jsonl").read_text()
    assert "moved on" in events
    assert done.returncode == 0
