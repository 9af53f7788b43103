"""The states of a job: every edge of the picture, from what is really seen."""

import pytest

from harness.diagnose.signals.thresholds import AlertThresholds
from harness.monitor.job_state import JobState, Progress
from harness.monitor.records import LauncherRecord
from harness.monitor.states import EDGES, Happening, State, advance

NOW = 10_000.0
LIMITS = AlertThresholds(hang_s=90, restarts=3, restart_window_s=1800, restart_limit_s=1200, gone_s=60)


def at(step: int, when: float = NOW, attempt: int = 0, **fields: object) -> Progress:
    """A job of two ranks that finished `step` at `when`."""
    said = {"stepped": True, "p50_s": 1.0, "ranks": 2, **fields}
    return Progress(attempt=attempt, step=step, at=when, **said)  # type: ignore[arg-type]


def job(*looks: tuple[float, Progress]) -> JobState:
    """A job after some looks at it."""
    state = JobState(LIMITS)
    for now, progress in looks:
        state.look(now, progress)
    return state


def exited(t: float, rank: int = 0) -> LauncherRecord:
    return LauncherRecord(t, "exited", rank)


def test_running_to_stalled_and_back() -> None:
    """No step for longer than the limit is a stall; a step ends it."""
    state = job((NOW, at(5)), (NOW + 91, at(5)))
    stalled = state.state

    assert (stalled, state.look(NOW + 92, at(6, NOW + 92))) == (State.STALLED, State.RUNNING)


def test_slow_steps_have_a_longer_limit() -> None:
    """With steps of 40 s the limit is three of them, not the floor."""
    slow = at(5, p50_s=40.0)

    assert job((NOW, slow), (NOW + 119, slow)).state is State.RUNNING
    assert job((NOW, slow), (NOW + 121, slow)).state is State.STALLED


def test_running_to_numeric_fault_to_restarting() -> None:
    """A loss that is not finite, then the restart from an earlier checkpoint."""
    state = job((NOW, at(5)), (NOW + 1, at(6, NOW + 1, loss_finite=False)))
    before = state.state
    state.launcher(LauncherRecord(NOW + 2, "restarting"))

    assert (before, state.state) == (State.NUMERIC_FAULT, State.RESTARTING)


def test_running_to_hardware_fault_to_stalled_or_restarting_or_quiet() -> None:
    """A card's XID; it drags the job into a hang, or the node is replaced, or nothing comes of it."""
    faulty = at(5, xid_at=NOW)
    assert job((NOW, faulty)).state is State.HARDWARE_FAULT
    assert job((NOW, faulty), (NOW + 91, faulty)).state is State.STALLED
    assert job((NOW, faulty), (NOW + 601, at(9, NOW + 600, xid_at=NOW))).state is State.RUNNING
    state = job((NOW, faulty))
    state.launcher(exited(NOW + 1))
    assert state.state is State.RESTARTING


def test_stalled_to_restarting_to_resuming_to_running() -> None:
    """A rank dies, the new start joins, recomputes, and passes the step where it was."""
    state = job((NOW, at(50)), (NOW + 91, at(50)))
    seen = [state.state]
    state.launcher(exited(NOW + 95))
    seen.append(state.look(NOW + 96, at(50)))
    seen.append(state.look(NOW + 110, at(50, NOW, attempt=1, stepped=False)))
    seen.append(state.look(NOW + 200, at(41, NOW + 200, attempt=1)))
    seen.append(state.look(NOW + 210, at(50, NOW + 210, attempt=1)))
    seen.append(state.look(NOW + 211, at(51, NOW + 211, attempt=1)))

    resuming = State.RESUMING
    assert seen == [State.STALLED, State.RESTARTING, resuming, resuming, resuming, State.RUNNING]


def test_loading_for_minutes_is_no_second_stall() -> None:
    """While a restarted job loads its checkpoint, the old last step is not held against it."""
    state = job((NOW, at(50)), (NOW + 91, at(50)))
    state.launcher(exited(NOW + 95))
    loading = at(50, NOW, attempt=1, stepped=False)

    assert state.look(NOW + 600, loading) is State.RESUMING


@pytest.mark.parametrize(("joined", "becomes"), [(False, State.STALLED), (True, State.ESCALATED)])
def test_a_restart_that_never_ends_is_told_again(joined: bool, becomes: State) -> None:
    """After twenty minutes a restart in progress is none any more, and silences nothing."""
    state = job((NOW, at(50)))
    state.launcher(LauncherRecord(NOW + 1, "restarting"))
    after = at(50, NOW, attempt=int(joined), stepped=not joined)
    state.look(NOW + 2, after)

    assert state.look(NOW + 1200, after) in (State.RESTARTING, State.RESUMING)
    assert state.look(NOW + 1202, after) is becomes


def test_resuming_to_escalated() -> None:
    """A job that stalls again within half an hour of its restart wants a person."""
    state = job((NOW, at(50)), (NOW + 1, at(41, NOW + 1, attempt=1)))
    before = state.state

    assert (before, state.look(NOW + 92, at(41, NOW + 1, attempt=1))) == (State.RESUMING, State.ESCALATED)


def test_running_again_and_stalled_again_is_escalated_too() -> None:
    """Also once it had caught up; after half an hour it is a stall like any other."""
    caught_up = job((NOW, at(50)), (NOW + 1, at(51, NOW + 1, attempt=1)))
    later = job((NOW, at(50)), (NOW + 1, at(51, NOW + 1, attempt=1)), (NOW + 1900, at(900, NOW + 1900, 1)))

    assert caught_up.look(NOW + 92, at(51, NOW + 1, attempt=1)) is State.ESCALATED
    assert later.look(NOW + 1991, at(900, NOW + 1900, attempt=1)) is State.STALLED


def test_escalated_to_restarting_or_stopped() -> None:
    """A person restarts it, or stops it."""
    looks = (NOW, at(50)), (NOW + 1, at(41, NOW + 1, attempt=1)), (NOW + 92, at(41, NOW + 1, attempt=1))
    restarted, stopped = job(*looks), job(*looks)
    restarted.launcher(LauncherRecord(NOW + 100, "restarting"))
    stopped.launcher(LauncherRecord(NOW + 100, "stopped"))
    stopped.look(NOW + 101, None)

    assert (restarted.state, stopped.state) == (State.RESTARTING, State.STOPPED)
    assert not stopped.gone


def test_restarts_that_fail_one_after_another_stop_the_job() -> None:
    """Three starts in half an hour: automatic recovery does not work, until the job gets further."""
    state = job((NOW, at(50)))
    for attempt in (1, 2, 3):
        state.launcher(exited(NOW + attempt))
        state.look(NOW + attempt, at(50, NOW, attempt=attempt, stepped=False))
    stopped = state.state
    recomputing = state.look(NOW + 4, at(41, NOW + 4, attempt=3))

    assert (stopped, recomputing) == (State.STOPPED, State.STOPPED)
    assert state.look(NOW + 20, at(51, NOW + 20, attempt=3)) is State.RUNNING


def test_a_task_that_does_not_come_back_is_gone() -> None:
    """Its processes ended before their time, and a minute later there is no new start."""
    state = job((NOW, at(50)))
    state.launcher(exited(NOW + 1))
    waiting = state.look(NOW + 60, at(50)), state.gone

    assert waiting == (State.RESTARTING, False)
    assert (state.look(NOW + 62, at(50)), state.gone) == (State.STOPPED, True)
    assert (state.look(NOW + 70, at(50, NOW, 1, stepped=False)), state.gone) == (State.RESUMING, False)


def test_a_job_that_finishes_is_stopped_and_not_gone() -> None:
    """Ranks that leave after their last step are no incident."""
    state = job((NOW, at(50)))
    for rank in (0, 1):
        state.launcher(LauncherRecord(NOW + 1, "finished", rank))
        state.launcher(exited(NOW + 2, rank))

    assert (state.look(NOW + 100, at(50)), state.gone) == (State.STOPPED, False)


def test_every_edge_leads_somewhere_else_or_restarts_the_restart() -> None:
    """The table has no edge that changes nothing, but for repeats of what may repeat."""
    loops = {key for key, becomes in EDGES.items() if key[0] is becomes}

    assert loops == {
        (State.RESTARTING, Happening.RESTART),
        (State.STOPPED, Happening.GONE),
        (State.STOPPED, Happening.ENDED),
    }
    assert advance(State.RUNNING, Happening.STEPPED) is State.RUNNING
