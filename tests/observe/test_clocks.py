"""Three clocks, fed with times."""

from harness.observe.clocks import ExitClock, JoinClock, StepClock


def test_no_stall_before_everybody_joined() -> None:
    """A slow start is not a stall."""
    clock = StepClock(first_floor_s=6.0)

    assert clock.stalled_s(1000.0) is None


def test_the_first_steps_get_longer() -> None:
    """Until three steps have a median the longer floor holds."""
    clock = StepClock(first_floor_s=6.0, floor_s=2.0)
    clock.joined(0.0)
    clock.stepped(1.0, [0.1, 0.1])

    assert clock.stalled_s(6.9) is None
    assert clock.stalled_s(7.0) == 6.0


def test_three_medians_or_the_floor() -> None:
    """After that, three median steps or the floor, whichever is longer."""
    fast = StepClock(first_floor_s=6.0, floor_s=2.0)
    fast.joined(0.0)
    fast.stepped(1.0, [0.1, 0.1, 0.1])
    slow = StepClock(first_floor_s=6.0, floor_s=2.0)
    slow.joined(0.0)
    slow.stepped(1.0, [1.0, 1.0, 1.0, 9.0])

    assert fast.stalled_s(2.9) is None
    assert fast.stalled_s(3.0) == 2.0
    assert slow.stalled_s(3.9) is None
    assert slow.stalled_s(4.0) == 3.0


def test_a_step_of_any_rank_restarts_the_clock() -> None:
    """Only a job in which nobody completes a step stalls."""
    clock = StepClock(first_floor_s=6.0)
    clock.joined(0.0)
    for second in range(1, 50):
        clock.stepped(float(second), [1.0])
        assert clock.stalled_s(second + 0.9) is None


def test_who_has_not_joined() -> None:
    """Ranks are named only after the limit."""
    clock = JoinClock(expected=4, limit_s=10.0, started=0.0)
    for rank in (0, 1, 3):
        clock.joined(rank)

    assert clock.overdue(9.9) == ()
    assert clock.overdue(10.0) == (2,)
    clock.joined(2)
    assert clock.complete
    assert clock.overdue(99.0) == ()


def test_who_is_still_there() -> None:
    """Ranks that linger long after the first one finished are named."""
    clock = ExitClock(expected=3, linger_limit_s=5.0)
    clock.finished(0, 1.0)
    clock.finished(2, 3.0)

    assert clock.lingering(5.9) == ()
    assert clock.lingering(6.0) == (1,)
    clock.finished(1, 6.5)
    assert clock.complete
    assert clock.lingering(99.0) == ()
