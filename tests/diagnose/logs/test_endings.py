"""Stops from outside, ends after the training was complete, and attempts that end alike."""

from pathlib import Path

import pytest

from harness.diagnose.logs.room import analyse_logs
from harness.model.finding import Finding
from harness.model.kinds import Kind
from tests.diagnose.logs.cases.writing import write


def decide(folder: Path, text: str, world: int | None = 4) -> Finding | None:
    return analyse_logs([write({"job.log": text.encode()}, folder)], world).finding


def expect(folder: Path, text: str, world: int | None = 4) -> Finding:
    found = decide(folder, text, world)
    assert found is not None
    return found


def at(minute: int, second: int, text: str) -> str:
    return f"2026-08-08 03:{minute:02}:{second:02},000 {text}\n"


STEPS = "".join(at(m, 0, f"[rank0]: step: {m}0  loss:  2.1") for m in range(10))
TIMEOUT = (
    "[rank{r}]: [PG ID 0 PG GUID 0(default_pg) Rank {r}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum="
    "1371, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600049 "
    "milliseconds before timing out."
)
CANCEL = "slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-08-08T03:09:{second}{reason} ***"
RAISED = "[rank2]: Traceback (most recent call last):\n[rank2]: KeyError: 'loss'\n"


def cancel(reason: str, minute: int = 9, second: int = 30) -> str:
    due = f" DUE TO {reason}" if reason else ""
    return at(minute, second, CANCEL.format(second=second, reason=due))


@pytest.mark.parametrize(
    ("reason", "how"),
    [("TIME LIMIT", "time_limit"), ("PREEMPTION", "preemption"), ("JOB REQUEUE", "job_requeue")],
)
def test_a_stop_of_a_job_that_worked(reason: str, how: str, tmp_path: Path) -> None:
    """Nobody is at fault; the reason is named."""
    found = expect(tmp_path, STEPS + cancel(reason))

    assert (found.kind, found.where.how, found.culprits, found.suspects) == (Kind.EXTERNAL_STOP, how, (), ())


def test_a_stop_outranks_what_comes_after_it(tmp_path: Path) -> None:
    """Exceptions and exits that follow are its consequence."""
    text = STEPS + cancel("TIME LIMIT") + at(9, 40, "x") + RAISED

    assert expect(tmp_path, text).kind is Kind.EXTERNAL_STOP


def test_a_hang_ends_in_a_time_limit_too(tmp_path: Path) -> None:
    """A timeout before it: the stop is not the cause."""
    timeouts = "".join(at(9, 10, TIMEOUT.format(r=r)) for r in range(4))

    assert expect(tmp_path, STEPS + timeouts + cancel("TIME LIMIT")).kind is Kind.FABRIC_STALLED


def test_a_failure_before_the_stop_is_the_cause(tmp_path: Path) -> None:
    """The scheduler cleans up."""
    found = expect(tmp_path, STEPS + RAISED + cancel(""))

    assert (found.kind, found.culprits) == (Kind.SOFTWARE_ERROR, (2,))


def test_a_time_limit_long_after_the_last_step_is_no_answer(tmp_path: Path) -> None:
    """The job hung: the limit only ended it."""
    found = decide(tmp_path, STEPS + cancel("TIME LIMIT", minute=59))

    assert found is None or found.kind is not Kind.EXTERNAL_STOP


def test_a_preemption_does_not_ask_whether_the_job_worked(tmp_path: Path) -> None:
    """A scheduler that wants the machines takes them."""
    assert expect(tmp_path, STEPS + cancel("PREEMPTION", minute=59)).kind is Kind.EXTERNAL_STOP


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.elastic: Received 15 death signal, shutting down workers",
        "torch.distributed.elastic: Received Signals.SIGHUP death signal, shutting down workers",
        "[rank: 0] Received SIGTERM: 15",
        "submitit INFO - Caught signal SIGUSR2 on node-0: this job is preempted.",
    ],
)
def test_a_signal_from_outside_to_a_job_that_worked(line: str, tmp_path: Path) -> None:
    """By torchrun, Lightning and submitit."""
    assert expect(tmp_path, STEPS + at(9, 30, line)).kind is Kind.EXTERNAL_STOP


def test_a_signal_without_any_sign_of_work_is_no_answer(tmp_path: Path) -> None:
    """Another agent's failure sends it as well."""
    line = "torch.distributed.elastic: Received 15 death signal, shutting down workers"

    found = decide(tmp_path, at(9, 30, line))

    assert found is None or found.kind is not Kind.EXTERNAL_STOP


def test_a_signal_at_one_agent_after_anothers_failure(tmp_path: Path) -> None:
    """It is that failure's consequence."""
    signal = at(9, 30, "torch.distributed.elastic: Received 15 death signal, shutting down workers")

    assert expect(tmp_path, STEPS + RAISED + signal).culprits == (2,)


DONE = "[rank{r}]: Training complete"


def test_a_timeout_after_the_training_was_done_is_a_teardown(tmp_path: Path) -> None:
    """Its results are usable, and that is said."""
    timeouts = "".join(at(20, 0, TIMEOUT.format(r=r)) for r in range(4))
    done = "".join(at(9, 30, DONE.format(r=r)) for r in range(4))

    found = expect(tmp_path, STEPS + done + timeouts)

    assert (found.kind, found.culprits) == (Kind.TEARDOWN_HANG, ())
    assert "usable" in found.summary


def test_a_timeout_before_the_completion_line_is_no_teardown(tmp_path: Path) -> None:
    """It has to come before every timeout and failure."""
    timeouts = "".join(at(9, 10, TIMEOUT.format(r=r)) for r in range(4))

    assert expect(tmp_path, STEPS + timeouts + at(9, 30, DONE.format(r=0))).kind is not Kind.TEARDOWN_HANG


def test_one_rank_that_is_done_while_others_go_on_ended_early(tmp_path: Path) -> None:
    """The rest makes steps, then waits for it."""
    text = (
        STEPS
        + at(9, 30, DONE.format(r=3))
        + at(9, 40, "[rank0]: step: 95  loss:  2.1")
        + "".join(at(20, 0, TIMEOUT.format(r=r)) for r in range(3))
    )

    found = expect(tmp_path, text)

    assert (found.kind, found.where.how, found.culprits) == (Kind.RANK_EXITED, "finished_early", (3,))


@pytest.mark.parametrize(("waiting", "culprits"), [((0, 1, 2), (3,)), ((0, 1, 2, 3), ())])
def test_an_exit_code_0_before_the_others_timed_out(
    waiting: tuple[int, ...], culprits: tuple[int, ...], tmp_path: Path
) -> None:
    """Unless that rank has a timeout of its own."""
    start = "".join(
        f"node-0:{100 + r}:99 [{r}] NCCL INFO comm 0x7f rank {r} nranks 4 cudaDev {r} busId "
        f"{r}d000 - Init COMPLETE\n"
        for r in range(4)
    )
    text = (
        start
        + at(9, 30, "[INFO] [launch.py:351:main] Process 103 exits successfully.")
        + "".join(at(20, 0, TIMEOUT.format(r=r)) for r in waiting)
    )

    assert expect(tmp_path, text).culprits == culprits


def test_a_completed_job_without_trouble_is_healthy(tmp_path: Path) -> None:
    """It says so, and nothing says otherwise."""
    found = expect(tmp_path, STEPS + "".join(at(9, 30, DONE.format(r=r)) for r in range(4)))

    assert found.kind is Kind.HEALTHY
    assert "last step 90" in found.summary


def test_steps_alone_are_no_good_end(tmp_path: Path) -> None:
    """Nobody knows how it ended."""
    assert decide(tmp_path, STEPS) is None


RESTART = "[agent] restart_count={n} group_rank=0\n"


def test_attempts_that_end_alike_are_a_loop(tmp_path: Path) -> None:
    """The cause that they share stays in the chain."""
    text = STEPS + RAISED + RESTART.format(n=1) + STEPS + RAISED

    found = expect(tmp_path, text)

    assert (found.kind, found.culprits) == (Kind.RESTART_LOOP, (2,))
    assert "software_error" in found.chain[0]


def test_attempts_that_get_further_are_no_loop(tmp_path: Path) -> None:
    """The last one is diagnosed by itself."""
    more = STEPS + at(10, 0, "[rank0]: step: 100  loss:  2.1")

    assert expect(tmp_path, STEPS + RAISED + RESTART.format(n=1) + more + RAISED).kind is Kind.SOFTWARE_ERROR


def test_attempts_that_end_otherwise_are_no_loop(tmp_path: Path) -> None:
    """Another rank failed before."""
    text = STEPS + RAISED + RESTART.format(n=1) + STEPS + RAISED.replace("rank2", "rank1")

    found = expect(tmp_path, text)

    assert (found.kind, found.culprits) == (Kind.SOFTWARE_ERROR, (1,))
