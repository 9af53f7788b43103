"""Deaths and errors that only follow from others are set aside, with the reason; causes are not."""

from pathlib import Path

import pytest

from harness.diagnose.logs.room import LogsResult, analyse_logs
from harness.diagnose.logs.symptoms import exit_code
from harness.model.kinds import Kind
from tests.diagnose.logs.cases.writing import write

TIMEOUT = (
    "[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1371, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600049 "
    "milliseconds before timing out."
)
EXIT = "failed (exitcode: {code}) local_rank: {rank} (pid: {pid}) of binary: /usr/bin/python3"


def read(folder: Path, text: str, world: int | None = 4) -> LogsResult:
    return analyse_logs([write({"job.log": text.encode()}, folder)], world)


def set_aside(folder: Path, text: str, what: str) -> str:
    """Why the only event of a class is a symptom."""
    (event,) = [e for e in read(folder, text).symptoms if e.what == what]
    assert event.symptom_of
    return event.symptom_of


def accused(result: LogsResult) -> set[int]:
    found = result.finding
    return {*found.culprits, *found.suspects} if found else set()


def agent(code: int, rank: int = 3, at: str = "03:12:50") -> str:
    """One agent on one machine says that a rank ended."""
    labels = "".join(f"[default{r}]:hello\n" for r in range(4))
    return labels + f"2026-08-08 {at},000 {EXIT.format(code=code, rank=rank, pid=100 + rank)}\n"


@pytest.mark.parametrize("code", [-6, 134])
def test_an_abort_where_a_watchdog_gave_up(code: int, tmp_path: Path) -> None:
    """The watchdog aborts its own process."""
    text = f"2026-08-08 03:12:40,000 [rank3]: {TIMEOUT.format(rank=3)}\n" + agent(code)

    assert "abort that follows" in set_aside(tmp_path, text, "exit")


@pytest.mark.parametrize("code", [-15, 143])
def test_an_end_that_somebody_asked_for(code: int, tmp_path: Path) -> None:
    """SIGTERM comes from a launcher or a person."""
    assert "asked it to end" in set_aside(tmp_path, agent(code), "exit")


def test_a_process_that_the_agent_had_signalled(tmp_path: Path) -> None:
    """Whatever its exit code is then."""
    text = "2026-08-08 03:12:44,000 Sending process 103 closing signal SIGTERM\n" + agent(1)

    assert "told it to end" in set_aside(tmp_path, text, "exit")


@pytest.mark.parametrize(("seconds", "cleanup"), [(2, False), (30, True), (90, True), (300, False)])
def test_a_kill_some_time_after_a_failure_is_clean_up(seconds: int, cleanup: bool, tmp_path: Path) -> None:
    """A launcher kills what has not ended half a minute after it asked."""
    text = (
        "2026-08-08 03:10:00,000 [rank1]: Traceback (most recent call last):\n"
        "2026-08-08 03:10:00,000 [rank1]: ValueError: bad\n"
    ) + agent(-9, at=f"03:{10 + seconds // 60:02}:{seconds % 60:02}")

    result = read(tmp_path, text)

    aside = [e.symptom_of for e in result.symptoms if e.what == "exit"]
    assert (len(aside) == 1 and "clean-up" in str(aside[0])) is cleanup


def test_a_kill_after_the_ranks_own_failure_is_not_clean_up_of_it(tmp_path: Path) -> None:
    """Only another rank's failure makes a launcher kill this one."""
    text = "2026-08-08 03:10:00,000 [rank3]: ValueError: bad\n" + agent(-9, at="03:10:40")

    assert [e for e in read(tmp_path, text).symptoms if e.what == "exit"] == []


def test_an_exit_of_a_rank_that_speaks_of_others_only(tmp_path: Path) -> None:
    """All its exceptions are of lost communication."""
    text = (
        "[rank3]: Traceback (most recent call last):\n"
        "[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
    ) + agent(1)

    assert "lost communication" in set_aside(tmp_path, text, "exit")


def test_an_exit_of_a_rank_that_raised_something_else_too(tmp_path: Path) -> None:
    """One exception of its own makes it no symptom."""
    text = (
        "[rank3]: Traceback (most recent call last):\n[rank3]: KeyError: 'loss'\n"
        "[rank3]: Traceback (most recent call last):\n"
        "[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
    ) + agent(1)

    result = read(tmp_path, text)

    assert [e for e in result.symptoms if e.what == "exit"] == []
    assert result.finding is not None
    assert result.finding.culprits == (3,)


@pytest.mark.parametrize(
    "raised",
    [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15",
        "SystemExit: 1",
        "KeyboardInterrupt",
        "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.",
        "ray.exceptions.RayTaskError(ValueError): x",
    ],
)
def test_reports_of_an_end_are_no_cause(raised: str, tmp_path: Path) -> None:
    """They only say that a process ended."""
    text = f"[rank3]: Traceback (most recent call last):\n[rank3]: {raised}\n"

    assert accused(read(tmp_path, text)) == set()


@pytest.mark.parametrize(
    "raised",
    [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
        "closed by peer [10.0.0.2]:42",
        "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms "
        "for recv operation to complete",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclRemoteError",
        "torch.distributed.DistNetworkError: Connection was likely closed. Did the remote "
        "server shutdown or crash?",
        "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. "
        "7/8 clients joined.",
        "RuntimeError: Broken pipe",
    ],
)
def test_lost_communication_is_no_cause(raised: str, tmp_path: Path) -> None:
    """It speaks of others, not of what this rank did."""
    text = f"[rank3]: Traceback (most recent call last):\n[rank3]: {raised}\n"

    result = read(tmp_path, text)

    assert 3 not in accused(result)
    assert result.finding is None or result.finding.kind is not Kind.SOFTWARE_ERROR


def test_an_exception_after_the_ranks_own_timeout(tmp_path: Path) -> None:
    """The abort makes it."""
    text = (
        f"[rank3]: {TIMEOUT.format(rank=3)}\n[rank3]: Traceback (most recent call last):\n"
        "[rank3]: RuntimeError: CUDA error: unspecified launch failure\n"
    )

    assert "same rank's timeout" in set_aside(tmp_path, text, "cuda_launch")


def test_an_exception_that_the_rank_survived(tmp_path: Path) -> None:
    """It made another step."""
    text = (
        "[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: bad\n[rank3]: "
        "step: 90  loss:  2.1\n"
    )

    assert "went on" in set_aside(tmp_path, text, "exception")


def test_a_loaders_worker_that_was_asked_to_end(tmp_path: Path) -> None:
    """SIGTERM to the group reaches its children."""
    text = (
        "[rank3]: Traceback (most recent call last):\n"
        "[rank3]: RuntimeError: DataLoader worker (pid 4243) is killed by signal: Terminated. \n"
    )

    assert accused(read(tmp_path, text)) == set()


def test_exit_code_0_is_no_failure(tmp_path: Path) -> None:
    """It ended well."""
    assert "well" in set_aside(tmp_path, agent(0), "exit")


@pytest.mark.parametrize(
    ("line", "code", "signal"),
    [
        (EXIT.format(code=-9, rank=3, pid=103), None, 9),
        (EXIT.format(code=137, rank=3, pid=103), None, 9),
        (EXIT.format(code=1, rank=3, pid=103), 1, None),
        (EXIT.format(code=255, rank=3, pid=103), 255, None),
        ("srun: error: node-0: task 3: Killed", None, 9),
        ("srun: error: node-0: task 3: Segmentation fault", None, 11),
        ("srun: error: node-0: task 3: Exited with exit code 143", None, 15),
    ],
)
def test_codes_and_signals(line: str, code: int | None, signal: int | None, tmp_path: Path) -> None:
    """128 + n is signal n; srun names signals in words."""
    told = read(tmp_path, line + "\n").story
    assert told is not None

    (event,) = told.of("exit", "task_end")

    assert exit_code(event) == (code, signal)


def test_a_torn_cancel_after_a_failed_task_is_clean_up(tmp_path: Path) -> None:
    """CANCELLED without a reason follows the failure."""
    text = (
        "2026-08-08 03:10:00,000 [rank1]: Traceback (most recent call last):\n"
        "2026-08-08 03:10:00,000 [rank1]: ValueError: bad\n"
        "2026-08-08 03:10:05,000 slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-08-08T03:1\n"
    )

    found = read(tmp_path, text).finding

    assert found is not None
    assert (found.kind, found.culprits) == (Kind.SOFTWARE_ERROR, (1,))
