"""Passing over the lines that say nothing."""

import pytest

from harness.diagnose.logs.aistore.patterns import PATTERNS
from harness.diagnose.logs.aistore.skim import NEEDLES, worth_reading


def quiet(*hours: int) -> list[bytes]:
    """Lines that say nothing, one for each hour given."""
    return [f"I {hour:02}:00:00.123456 base:211 x-list[Ap] finished".encode() for hour in hours]


def test_of_quiet_lines_only_the_ends_are_looked_at() -> None:
    """First and last stamped line keep the clock."""
    assert list(worth_reading([b"  torn", *quiet(20, 20, 20, 20), b"goroutine 1:"])) == [1, 4]


def test_lines_with_something_to_say_are_looked_at() -> None:
    """Counters, markers and patterns are found between quiet lines."""
    lines = quiet(*[20] * 9)
    lines[3] = b"I 20:00:00.123456 {get.n:12}"
    lines[5] = b"E 20:00:00.123456 x-get-batch[K]: out-of-bounds index 1"

    assert list(worth_reading(lines)) == [0, 3, 5, 8]


@pytest.mark.parametrize("hours", [(23, 23, 0, 0), (1, 2, 3)])
def test_where_the_hour_changes_all_are_looked_at(hours: tuple[int, ...]) -> None:
    """A midnight could be among them."""
    assert list(worth_reading(quiet(*hours))) == list(range(len(hours)))


def test_each_pattern_has_a_needle() -> None:
    """No pattern can be passed over."""
    for pattern in PATTERNS:
        for words in pattern.words:
            assert any(needle in word.encode() for needle in NEEDLES for word in words), words
