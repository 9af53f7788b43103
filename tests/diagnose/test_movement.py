"""Two samplings of the same main threads: a job that moves, one that stands, one that cannot be read."""

import pytest

from harness.diagnose.movement import Movement, movement, stood_s
from harness.diagnose.stacks.samples import Frame, ProcessStacks, RankStacks, Thread


def stacks(lines: dict[int, int | None]) -> dict[int, RankStacks]:
    """Main threads by the line that they are in; None: not readable."""
    found = {}
    for rank, line in lines.items():
        frames = (Frame(name="step", filename="/job/train.py", line=line),) if line is not None else ()
        thread = Thread(thread_name="MainThread", frames=frames)
        found[rank] = RankStacks(rank, f"rank_{rank}.json", (ProcessStacks(pid=rank, threads=(thread,)),))
    return found


@pytest.mark.parametrize(
    ("second", "switches", "moving"),
    [
        ({0: 7, 1: 7, 2: 7, 3: 7}, {}, False),
        ({0: 8, 1: 8, 2: 8, 3: 7}, {}, True),
        ({0: 8, 1: 7, 2: 7, 3: 7}, {}, False),
        ({0: 7, 1: 7, 2: 7, 3: 7}, {0: 80.0, 1: 90.0, 2: 85.0, 3: 0.0}, True),
        ({0: 7, 1: 7, 2: 7, 3: 7}, {0: 0.3, 1: 0.0, 2: 0.0, 3: 20.0}, False),
        ({0: None, 1: None, 2: 8, 3: 8}, {}, True),
        ({0: None, 1: None, 2: None, 3: None}, {}, False),
    ],
)
def test_a_job_moves_where_most_of_what_was_read_moved(
    second: dict[int, int | None], switches: dict[int, float], moving: bool
) -> None:
    """Other lines, or main threads that slept and woke in one line; one rank that spins is not enough."""
    assert movement(stacks({0: 7, 1: 7, 2: 7, 3: 7}), stacks(second), switches).moving is moving


def test_looks_add_up() -> None:
    """A rank that moved in any look has moved."""
    both = Movement(frozenset((0, 1, 2)), frozenset((0,))) | Movement(frozenset((0, 1, 2)), frozenset((1,)))

    assert both.moving
    assert not Movement().moving


@pytest.mark.parametrize(
    ("notice", "seconds"),
    [
        ("collect: standing for 612.4 s: the main threads of ranks 0-3 did not move within 3.2 s", 612.4),
        ("collect: moving: steps were completed within 0.8 s", None),
        ("stall: no step on any rank for 2.0 s (limit 2.0 s)", None),
        (None, None),
    ],
)
def test_how_long_a_job_stood(notice: str | None, seconds: float | None) -> None:
    """Only a collection of a standing job says it."""
    assert stood_s(notice) == seconds
