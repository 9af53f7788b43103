"""The clock of a file: days are counted from its name, its markers, and midnights."""

import pytest

from harness.diagnose.logs.aistore.clock import Clock

from .made import unix

HOUR = 3600.0


def named(month: int, day: int, second: float) -> Clock:
    """A clock of a file whose name states its beginning."""
    clock = Clock()
    assert clock.begins(month, day, second)
    return clock


def test_the_same_time_twice_is_two_days() -> None:
    """A step back of the time of day is a midnight."""
    clock = named(11, 19, 21 * HOUR)

    first, *_, second = (clock.at(at * HOUR) for at in (21.5, 3.0, 4.0, 21.5))

    assert second - first == 24 * HOUR


def test_lines_out_of_order_are_no_midnight() -> None:
    """Some seconds back, also across midnight, do not make a day."""
    clock = named(11, 19, 23 * HOUR)

    found = [clock.at(at) for at in (86395.0, 86393.0, 2.0, 86399.0, 3.0)]

    assert found == [86395.0, 86393.0, 86402.0, 86399.0, 86403.0]


@pytest.mark.parametrize("garbled", [4.0, 23.5])
def test_one_garbled_stamp_is_no_midnight(garbled: float) -> None:
    """A single line far back or far ahead, after which time goes on as before, does not count."""
    clock = named(11, 19, 20 * HOUR)

    found = [clock.at(at * HOUR) for at in (20.1, garbled, 20.2, 20.3)]

    assert found[2:] == [20.2 * HOUR, 20.3 * HOUR]


def test_the_marker_gives_the_year_and_the_zone() -> None:
    """A name knows month and day; the first marker knows the rest."""
    clock = named(11, 19, 20 * HOUR)
    at = clock.at(21 * HOUR)
    clock.marker("I 21:00:00.1 common:512 19 Nov 25 21:00 UTC =============", 21 * HOUR)

    assert (clock.year_known, clock.zone, clock.zone_offset_s) == (True, "UTC", 0.0)
    assert clock.absolute(at) == unix("2025-11-19 21:00:00")


def test_the_marker_decides_after_a_hole_of_days() -> None:
    """Days without a line cannot be counted; the marker puts the following lines right."""
    clock = named(11, 19, 20 * HOUR)
    before = clock.at(20.5 * HOUR)
    clock.at(21 * HOUR)
    clock.marker("I 21:00:00.1 22 Nov 25 21:00 UTC =============", 21 * HOUR)

    assert clock.absolute(before) == unix("2025-11-19 20:30:00")
    assert clock.absolute(clock.at(21.5 * HOUR)) == unix("2025-11-22 21:30:00")


def test_a_december_file_with_a_january_marker_began_last_year() -> None:
    """The year of the name is the one that lies before the marker."""
    clock = named(12, 31, 23 * HOUR)
    first = clock.at(23.5 * HOUR)
    clock.at(0.5 * HOUR)
    clock.marker("I 00:30:00.1 common:512 01 Jan 26 00:30 UTC =============", 0.5 * HOUR)

    assert clock.absolute(first) == unix("2025-12-31 23:30:00")


@pytest.mark.parametrize(
    ("zone", "offset"), [("UTC", 0.0), ("GMT", 0.0), ("+03", 3 * HOUR), ("-0730", -7.5 * HOUR), ("PST", None)]
)
def test_a_zone_with_a_number_is_taken_off(zone: str, offset: float | None) -> None:
    """Letters other than UTC have no one offset."""
    clock = Clock()
    clock.at(20 * HOUR)
    clock.marker(f"I 20:00:00.1 common:512 19 Nov 25 20:00 {zone} =============", 20 * HOUR)

    assert clock.zone_offset_s == offset


def test_a_marker_in_utc_dates_stamps_of_another_zone() -> None:
    """Where stamp and marker of one line differ by hours, the marker holds."""
    clock = Clock()
    at = clock.at(1 * HOUR)
    clock.marker("I 01:00:00.1 common:512 19 Nov 25 23:00 UTC =============", 1 * HOUR)

    assert clock.absolute(at) == unix("2025-11-19 23:00:00")


@pytest.mark.parametrize(
    "text", ["19 Nov 25 20:00 UTC", "common:512 32 Nov 25 20:00 UTC ===", "=== 1 Foo 25 20:00 UTC ="]
)
def test_what_is_no_marker_changes_nothing(text: str) -> None:
    """A date in a message, or one that does not exist, is no marker."""
    clock = Clock()
    clock.at(20 * HOUR)
    clock.marker(text, 20 * HOUR)

    assert (clock.base, clock.zone) == (None, None)
