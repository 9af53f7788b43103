"""Garbled stats lines."""

from harness.diagnose.logs.aistore.clean import cleaned, falls
from harness.diagnose.logs.aistore.model import TRACKED, Sample


def row(*counts: int, at: tuple[float, ...] = ()) -> list[Sample]:
    """One sample a count of get.n, three minutes apart."""
    return [
        Sample(at[i] if at else 180.0 * i, i + 1, (count,) + (0,) * (len(TRACKED) - 1))
        for i, count in enumerate(counts)
    ]


def counts(samples: list[Sample]) -> list[int]:
    """get.n of each sample."""
    return [sample.values[0] for sample in samples]


def test_one_number_off_its_course_was_misread() -> None:
    """Too large or too small for one line alone: neither errors nor a restart."""
    assert counts(cleaned(row(10, 90_000, 20, 2, 30))) == [10, 10, 20, 20, 30]
    assert falls(cleaned(row(10, 90_000, 20, 2, 30))) == []


def test_a_restart_stays_one() -> None:
    """Counters that begin anew and go on from there are not put right."""
    samples = cleaned(row(1000, 2000, 10, 20, 30))

    assert counts(samples) == [1000, 2000, 10, 20, 30]
    assert [sample.line for sample in falls(samples)] == [3]


def test_a_stamp_later_than_the_next_is_dropped() -> None:
    """A garbled hour does not move growth to another time."""
    assert counts(cleaned(row(10, 20, 30, at=(0.0, 7200.0, 360.0)))) == [10, 30]


def test_few_samples_are_left_alone() -> None:
    """None, one or two cannot be judged."""
    assert [counts(cleaned(row(*given))) for given in ((), (5,), (9, 5))] == [[], [5], [9, 5]]
