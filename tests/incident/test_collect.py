"""`drill collect` on a real torchrun job that knows nothing of us: first it runs, then one rank sleeps."""

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from harness.bundle.reader import BundleReader
from harness.diagnose.api import diagnose
from harness.incident.collect import Incident
from harness.model.bundle import Manifest
from harness.observe.jobs import Job, ranks_among, ranks_matching, ranks_of_agent
from harness.observe.processes import kill_tree
from tests.conftest import TAG, survivors

pytestmark = [pytest.mark.ranks, pytest.mark.xdist_group("collect")]

DRILL = (sys.executable, "-m", "harness.cli")
WORLD = 4
CULPRIT = 2
SECRET = "hunter2-is-not-evidence"

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist

folder = sys.argv[1]
dist.init_process_group("gloo")
x = torch.ones(8)

def step():
    time.sleep(0.01)
    dist.all_reduce(x)

def asleep():
    open(f"{folder}/hangs", "w").close()
    time.sleep(600)

open(f"{folder}/runs_{dist.get_rank()}", "w").close()
print("about to step", flush=True)
while True:
    step()
    if dist.get_rank() == 2 and os.path.exists(f"{folder}/hang"):
        asleep()
"""


@dataclass(frozen=True)
class Training:
    """A job that was started without us: its torchrun, and the folder in which it says how far it is."""

    agent: int
    folder: Path

    @property
    def script(self) -> str:
        return str(self.folder / "train.py")

    def await_file(self, name: str, limit_s: float = 60.0) -> None:
        deadline = time.monotonic() + limit_s
        while not (self.folder / name).exists():
            assert time.monotonic() < deadline, (self.folder / "torchrun.log").read_text()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """torchrun with four gloo ranks that step until they are told to hang."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(SCRIPT)
    tag = secrets.token_hex(8)
    command = (
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(WORLD), "--standalone"),
        *("--log-dir", str(folder / "logs"), "--redirects", "3", str(folder / "train.py"), str(folder)),
    )
    environ = {**os.environ, TAG: tag, "API_TOKEN": SECRET, "OMP_NUM_THREADS": "1"}
    with (folder / "torchrun.log").open("wb") as log:
        agent = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
    job = Training(agent.pid, folder)
    try:
        for rank in range(WORLD):
            job.await_file(f"runs_{rank}")
        yield job
    finally:
        kill_tree(agent.pid)
        agent.wait()
        left = survivors(tag)
        for process in left:
            process.kill()
    assert not left, f"left running: {left}"


@pytest.fixture(scope="module")
def hanging(training: Training) -> Job:
    """The same job once rank 2 sleeps in its own code."""
    (training.folder / "hang").touch()
    training.await_file("hangs")
    return ranks_of_agent(training.agent)


def collect(*args: str, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """The command itself."""
    return subprocess.run(
        (*DRILL, "collect", *args), cwd=cwd, capture_output=True, text=True, env={**os.environ, **environ}
    )


def manifest_of(bundle: Path) -> Manifest:
    """What a bundle says of itself."""
    manifest = BundleReader.at(bundle).manifest()
    assert manifest is not None
    return manifest


def test_a_job_that_runs_has_no_culprit(training: Training, tmp_path: Path) -> None:
    """Its main threads move between samplings: whoever is sampled in its own code is innocent."""
    job = ranks_matching(training.script)

    done = Incident(job, tmp_path / "bundle").run()

    assert done.notice.startswith("collect: moving")
    assert done.result.diagnosis.culprits == ()
    assert done.result.diagnosis.suspects == ()


def test_the_sleeping_rank_of_a_hanging_job_is_named(
    training: Training, hanging: Job, tmp_path: Path
) -> None:
    """By torchrun's pid: stacks twice, logs, rank map; the job lives on; no secret is kept."""
    states = {pid: psutil.Process(pid).create_time() for pid in hanging.pids.values()}

    done = collect("--torchrun-pid", str(training.agent), "--json", cwd=tmp_path)

    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert document["schema"] == "drill/collect/1"
    diagnosis = document["diagnosis"]
    assert (diagnosis["kind"], diagnosis["culprits"] or diagnosis["suspects"]) == ("rank_stalled", [CULPRIT])
    bundle = tmp_path / document["bundle"]
    assert bundle == tmp_path / "runs" / bundle.name
    assert (tmp_path / "runs" / "latest").resolve() == bundle
    reader = BundleReader.at(bundle)
    ranks = reader.rank_map()
    assert ranks is not None
    assert {r.rank: r.pid for r in ranks.ranks} == hanging.pids
    assert all(r.joined is not None and r.started is not None for r in ranks.ranks)
    for sampling in (0, 1):
        folder = bundle / "stacks" / "attempt_0" / str(sampling)
        assert {p.name for p in folder.iterdir()} == {f"rank_{n}.json" for n in range(WORLD)}
    assert len(list(bundle.glob("logs/*/attempt_0/*/stdout.log"))) == WORLD
    assert b"about to step" in next(bundle.glob(f"logs/*/attempt_0/{CULPRIT}/stdout.log")).read_bytes()
    assert (bundle / "launcher.log").exists()
    manifest = manifest_of(bundle)
    assert (manifest.backend, manifest.world_size, manifest.launcher) == ("gloo", WORLD, "collected")
    assert manifest.notice is not None and manifest.notice.startswith("collect: standing for")
    assert any("gloo has no watchdog" in lacking.why for lacking in manifest.not_collected)
    assert not [p for p in bundle.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    assert {pid: psutil.Process(pid).create_time() for pid in states} == states
    assert not (bundle / "live").exists()


def test_every_way_finds_the_same_ranks(training: Training, hanging: Job) -> None:
    """By torchrun's pid, by the command line (which torchrun's matches too) and by given pids."""
    by_match = ranks_matching("train[.]py .*" + re.escape(str(training.folder)))
    by_pid = ranks_among(list(hanging.pids.values()))

    assert hanging.pids == by_match.pids == by_pid.pids
    assert sorted(hanging.pids) == list(range(WORLD))
    assert hanging.agents == (training.agent,)


def test_two_nodes_make_one_job(hanging: Job, tmp_path: Path) -> None:
    """Each node collects its own ranks; put together they name the rank, with the node's folder in front."""
    halves = {"node0": (0, 1), "node1": (2, 3)}
    running = [
        subprocess.Popen(
            (*DRILL, "collect", "--pid", ",".join(str(hanging.pids[r]) for r in ranks), "--out", name),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, ranks in halves.items()
    ]
    for process in running:
        process.wait()

    diagnosis = diagnose(tmp_path / "node0", tmp_path / "node1").diagnosis

    assert (diagnosis.culprits or diagnosis.suspects) == (CULPRIT,)
    assert diagnosis.at[CULPRIT].pid == hanging.pids[CULPRIT]
    assert diagnosis.ranks.expected == WORLD
    assert diagnosis.ranks.missing == ""
    cited = {c.file for c in diagnosis.evidence if c.rank == CULPRIT and c.file}
    assert cited == {"node1/stacks/attempt_0/0/rank_2.json"}
    assert all((tmp_path / file).exists() for file in cited)


def test_half_of_it_is_forbidden(
    training: Training, hanging: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No environment, stacks or kernel log: the rest is kept, and what is missing is said with the remedy."""
    monkeypatch.setattr(psutil.Process, "environ", _denied)
    monkeypatch.setattr("harness.observe.stacks.find_py_spy", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")

    job = ranks_of_agent(training.agent)
    done = Incident(job, tmp_path / "bundle").run()

    assert job.pids == hanging.pids
    lacking = {u.what: u.why for u in manifest_of(tmp_path / "bundle").not_collected}
    assert "order in which the agent" in lacking["environment of rank 0-3"]
    assert "py-spy is not installed" in lacking["stacks of rank 0-3"]
    assert "--dump-path" in lacking["flight recorder of rank 0-3"]
    assert "dmesg" in lacking["kernel log"]
    assert len(list((tmp_path / "bundle").glob("logs/*/attempt_0/*/stdout.log"))) == WORLD
    assert done.result.diagnosis.culprits == ()


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((), 2),
        (("--torchrun-pid", "1", "--match", "x"), 2),
        (("--match", "("), 2),
        (("--pid", "one"), 2),
        (("--match", "a-command-line-that-nobody-has"), 4),
        (("--torchrun-pid", str(2**22 - 1)), 4),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(
    tmp_path: Path, args: tuple[str, ...], code: int
) -> None:
    """Usage is 2, nobody there is 4, and no folder is left."""
    done = collect(*args, cwd=tmp_path)

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def _denied(process: psutil.Process) -> dict[str, str]:
    raise psutil.AccessDenied(process.pid)
