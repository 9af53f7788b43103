"""Finding ranks that somebody else started, on plain processes that look like them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.model.errors import PrerequisiteError, UsageError
from harness.observe.jobs import Job, ranks_among, ranks_matching, ranks_of_agent

READY = "print('ready', flush=True)"
SLEEP = f"import time; {READY}; time.sleep(60)"
AGENT = f"""
import os, subprocess, sys, time
code = "import time; print(flush=True); time.sleep(60)"
children = []
for one in os.environ["CHILDREN"].split(";"):
    own = dict(os.environ, **dict(v.split("=") for v in one.split(",")))
    command = [sys.executable, "-c", code, sys.argv[1]]
    children.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE))
    # The environment of a process that was only just executed may still read as empty.
    children[-1].stdout.readline()
{READY}
time.sleep(60)
"""

Start = Callable[..., int]


@pytest.fixture
def start(tag: str, tmp_path: Path) -> Iterator[Start]:
    """Start a process that is ready once it prints; all end with their children."""
    running: list[subprocess.Popen[str]] = []

    def run(*command: str, **environ: str) -> int:
        clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        process = subprocess.Popen(
            command, env={**clean, **environ}, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process.pid

    yield run
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def agent_of(ranks: str, tmp_path: Path) -> tuple[str, ...]:
    """The command of a stand-in for torchrun, whose name its command line has."""
    script = tmp_path / "torchrun"
    script.write_text(AGENT)
    return (sys.executable, str(script), ranks)


def pids_of(job: Job) -> set[int]:
    """Processes of a job's ranks."""
    return set(job.pids.values())


def test_the_ranks_under_an_agent(start: Start, tmp_path: Path) -> None:
    """RANK, LOCAL_RANK, WORLD_SIZE and the attempt come from each rank's environment."""
    children = ";".join(
        f"RANK={4 + n},LOCAL_RANK={n},WORLD_SIZE=8,TORCHELASTIC_RESTART_COUNT=2" for n in (0, 1)
    )
    agent = start(*agent_of("x", tmp_path), CHILDREN=children)

    job = ranks_of_agent(agent)

    assert sorted(job.ranks) == [4, 5]
    assert [job.ranks[r].local_rank for r in (4, 5)] == [0, 1]
    assert (job.world_size, job.attempt, job.agents) == (8, 2, (agent,))
    assert job.ranks[4].cwd == Path.cwd()
    assert pids_of(ranks_among([*pids_of(job)])) == pids_of(job)


def test_an_agent_that_has_a_rank_itself_is_none(start: Start, tmp_path: Path) -> None:
    """Some clusters start torchrun with RANK set to the node's number: only its children are ranks."""
    children = "RANK=0,LOCAL_RANK=0,WORLD_SIZE=2;RANK=1,LOCAL_RANK=1,WORLD_SIZE=2"
    agent = start(*agent_of("only-here", tmp_path), CHILDREN=children, RANK="0", WORLD_SIZE="1")

    job = ranks_matching("only-here")

    assert sorted(job.ranks) == [0, 1]
    assert agent not in pids_of(job)


def test_helpers_belong_to_their_rank_and_wrappers_stand_before_it(start: Start, tmp_path: Path) -> None:
    """A shell in front and a loader's worker behind: the Python process between them is the rank."""
    script = tmp_path / "wrapped.py"
    script.write_text(f"import os, time\nif os.fork() == 0: time.sleep(60)\n{READY}\ntime.sleep(60)\n")
    shell = start("sh", "-c", f"{sys.executable} {script}; true", RANK="3", LOCAL_RANK="3", WORLD_SIZE="4")
    (python,) = psutil.Process(shell).children()
    (helper,) = python.children()

    assert ranks_matching(str(script)).pids == {3: python.pid}
    assert ranks_among([helper.pid]).pids == {3: python.pid}


def test_ranks_of_an_older_attempt_that_linger_are_left_out(start: Start, tmp_path: Path) -> None:
    """After a restart the newest attempt counts."""
    start(sys.executable, "-c", SLEEP, "again", RANK="0", WORLD_SIZE="1", TORCHELASTIC_RESTART_COUNT="0")
    new = start(
        sys.executable, "-c", SLEEP, "again", RANK="0", WORLD_SIZE="1", TORCHELASTIC_RESTART_COUNT="1"
    )

    job = ranks_matching("time.sleep.* again")

    assert job.pids == {0: new}
    assert job.attempt == 1


def test_two_jobs_that_match_are_told_apart_by_the_user(start: Start) -> None:
    """Two ranks 0 of one attempt: nobody but the user knows which job is meant."""
    for _ in range(2):
        start(sys.executable, "-c", SLEEP, "twins", RANK="0", WORLD_SIZE="1")

    with pytest.raises(UsageError, match="rank 0 is there more than once"):
        ranks_matching("time.sleep.* twins")


def test_variables_of_other_launchers(start: Start) -> None:
    """Without RANK, what MPI or Slurm set."""
    start(sys.executable, "-c", SLEEP, "by-slurm", SLURM_PROCID="6", SLURM_LOCALID="2", SLURM_NTASKS="8")

    job = ranks_matching("time.sleep.* by-slurm")

    assert (job.ranks[6].local_rank, job.world_size) == (2, 8)


def test_nobody_is_a_prerequisite_error(start: Start) -> None:
    """No process, no rank among them, or no such pattern: said in one line each."""
    plain = start(sys.executable, "-c", SLEEP, "no-rank")

    with pytest.raises(PrerequisiteError, match="none has RANK"):
        ranks_among([plain])
    with pytest.raises(PrerequisiteError, match="no such process"):
        ranks_of_agent(2**22 - 1)
    with pytest.raises(UsageError, match="not a regular expression"):
        ranks_matching("(")


def test_closed_environments_are_numbered_by_the_agents_order(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's job on one node: ranks in the order of their start, and that is said."""
    agent = start(*agent_of("--nnodes=1", tmp_path), CHILDREN="RANK=0;RANK=1;RANK=2")
    monkeypatch.setattr(psutil.Process, "environ", _denied)

    job = ranks_of_agent(agent)

    assert list(job.pids.values()) == sorted(job.pids.values())
    assert sorted(job.ranks) == [0, 1, 2]
    assert "in the order in which the agent" in job.lacking[0].why


def test_closed_environments_of_many_nodes_are_not_guessed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which ranks a node of several has is not known from outside: nobody is made up."""
    agent = start(*agent_of("--nnodes=2", tmp_path), CHILDREN="RANK=0;RANK=1")
    monkeypatch.setattr(psutil.Process, "environ", _denied)

    with pytest.raises(PrerequisiteError, match="run as the job's user or as root"):
        ranks_of_agent(agent)


def _denied(process: psutil.Process) -> dict[str, str]:
    raise psutil.AccessDenied(process.pid)
