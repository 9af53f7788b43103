"""`drill collect` on a real job that runs: the rank that drags it is told from a healthy job's ranks."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.diagnose.stacks.apart import cite_shares, who_waits_least
from harness.diagnose.stacks.shares import RankShares, read_shares
from harness.incident.collect import Incident
from harness.observe.jobs import ranks_matching
from harness.observe.processes import kill_tree
from tests.conftest import TAG, survivors

pytestmark = [pytest.mark.ranks, pytest.mark.xdist_group("collect")]

WORLD = 4
SLOW = 2

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist

folder = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(8)

def augment():
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        sum(range(2000))

def step():
    time.sleep(0.01)
    dist.all_reduce(x)

said = False
open(f"{folder}/runs_{rank}", "w").close()
while True:
    slow = os.path.exists(f"{folder}/slow")
    if slow and rank == 2:
        augment()
    step()
    if slow and not said:
        said = True
        open(f"{folder}/slow_{rank}", "w").close()
"""


def await_files(folder: Path, name: str, limit_s: float = 60.0) -> None:
    """Wait until every rank has written its file."""
    deadline = time.monotonic() + limit_s
    while not all((folder / f"{name}_{rank}").exists() for rank in range(WORLD)):
        assert time.monotonic() < deadline, (folder / "torchrun.log").read_text()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a torchrun job with four gloo ranks; rank 2 drags once there is a file `slow` in it."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(SCRIPT)
    tag = secrets.token_hex(8)
    command = (
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(WORLD), "--standalone"),
        *("--log-dir", str(folder / "logs"), "--redirects", "3", str(folder / "train.py"), str(folder)),
    )
    environ = {**os.environ, TAG: tag, "OMP_NUM_THREADS": "1"}
    with (folder / "torchrun.log").open("wb") as log:
        agent = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
    try:
        await_files(folder, "runs")
        yield folder
    finally:
        kill_tree(agent.pid)
        agent.wait()
        left = survivors(tag)
        for process in left:
            process.kill()
    assert not left, f"left running: {left}"


def shares_of(job: Path, bundle: Path, samples: int = 12) -> dict[int, RankShares]:
    """Collect from the running job, and read what its ranks were caught doing."""
    done = Incident(ranks_matching(str(job / "train.py")), bundle, samples=samples, over_s=3.0).run()
    assert done.notice.startswith("collect: moving")
    assert done.result.diagnosis.culprits == ()
    return read_shares(bundle / "stacks" / "attempt_0", bundle)


def test_a_healthy_job_names_nobody(job: Path, tmp_path: Path) -> None:
    """All ranks are alike; each was sampled as often as was asked for, beside the looks for movement."""
    shares = shares_of(job, tmp_path / "bundle")

    assert who_waits_least(shares, on_cpus=True) == ()
    assert sorted(shares) == list(range(WORLD))
    folder = tmp_path / "bundle" / "stacks" / "attempt_0"
    assert 12 + 2 <= len(list(folder.iterdir())) <= 12 + 4


def test_the_rank_that_drags_is_named(job: Path, tmp_path: Path) -> None:
    """It is at work in its own code while the others wait for it; the function is cited."""
    (job / "slow").touch()
    await_files(job, "slow")

    shares = shares_of(job, tmp_path / "bundle")

    assert who_waits_least(shares, on_cpus=True) == (SLOW,)
    assert shares[SLOW].work == "own"
    assert shares[SLOW].top[0][0].startswith("augment train.py:")
    cited = cite_shares(SLOW, shares)
    assert "in its own code, most in augment train.py:" in cited.says
    assert "most in all_reduce" in cited.says
    assert cited.file is not None and (tmp_path / "bundle" / cited.file).is_dir()


def test_no_further_samples(job: Path, tmp_path: Path) -> None:
    """With none asked for, a job that moves is looked at no longer than it takes to see that."""
    Incident(ranks_matching(str(job / "train.py")), tmp_path / "bundle", samples=0).run()

    assert len(list((tmp_path / "bundle" / "stacks" / "attempt_0").iterdir())) <= 4
