"""One file's clock, and many put side by side."""

import math
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.diagnose.logs.clocks import Alignment, Anchor, Clock, Event, FileClock, align
from harness.diagnose.logs.stamps import read_stamp

DAY_S = 86400


def unix(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


def clock(*lines: str, near: float | None = None, not_after: float | None = None) -> Clock:
    """The clock of a file with these lines, numbered from 1."""
    file = FileClock()
    for number, line in enumerate(lines, 1):
        file.feed(number, read_stamp(line))
    return file.resolve(near, not_after)


def times(found: Clock, count: int) -> list[float | None]:
    return [found.at(line).at for line in range(1, count + 1)]


def test_a_year_is_taken_from_a_dated_line_of_the_file() -> None:
    """Lines without a year get that of their neighbours, also over New Year."""
    found = clock(
        "[E1231 23:59:50.5 a.cpp:1] up",
        "2026-12-31 23:59:55 up",
        "[E0101 00:00:05.5 a.cpp:1] up",
    )

    assert times(found, 3) == [
        unix("2026-12-31T23:59:50.500"),
        unix("2026-12-31T23:59:55"),
        unix("2027-01-01T00:00:05.500"),
    ]
    assert (found.basis, found.zone, found.date) == ("unix", False, "own")


@pytest.mark.parametrize(
    ("near", "not_after", "year", "date"),
    [
        ("2027-01-03T00:00:00", None, 2026, "year"),
        (None, "2027-06-01T00:00:00", 2026, "year"),
        (None, "2027-12-28T00:00:00", 2026, "year"),
        (None, "2027-12-30T00:00:00", 2027, "year"),
        (None, None, 1972, "unknown"),
    ],
)
def test_a_year_from_outside(near: str | None, not_after: str | None, year: int, date: str) -> None:
    """Without any year in the file, the job's other times or the file's own last change give it."""
    found = clock(
        "[E1231 20:00:00 a.cpp:1] up",
        near=unix(near) if near else None,
        not_after=unix(not_after) if not_after else None,
    )

    assert found.at(1).at == unix(f"{year}-12-31T20:00:00")
    assert found.date == date


def test_days_are_counted_over_midnight() -> None:
    """A time of day that steps back by more than half a day is of the next one; late writers are not."""
    found = clock("23:59:58 a", "00:00:01 b", "23:59:59 late", "00:00:02 c", "12:00:00 d", "11:59:30 late")

    assert times(found, 6) == [86398, 86401, 86399, 86402, 129600, 129570]
    assert (found.basis, found.date) == ("day", "unknown")


def test_times_of_day_are_tied_to_dated_lines() -> None:
    """The days of a run come from the dated line before it, else from the one after it."""
    found = clock("I 23:59:00.5 a.go:1 x", "common:1 30 Nov 26 00:00 UTC", "I 00:00:30.5 a.go:1 x")

    assert times(found, 3) == [
        unix("2026-11-29T23:59:00.500"),
        unix("2026-11-30T00:00:00"),
        unix("2026-11-30T00:00:30.500"),
    ]
    assert found.zone


def test_a_day_from_the_time_of_the_file() -> None:
    """Times of day without any date are of the last day on which they fit before the file's end."""
    found = clock("23:00:00 a", "01:00:00 b", not_after=unix("2026-11-30T00:30:00"))

    assert times(found, 2) == [unix("2026-11-28T23:00:00"), unix("2026-11-29T01:00:00")]
    assert found.date == "outside"


def test_an_unexplained_step_back_leaves_the_day_uncertain() -> None:
    """Some hours back may be a midnight after a long silence: the time then holds give or take a day."""
    found = clock("20:00:00 a", "10:00:00 b")

    assert found.at(1).precision_s == 1.0
    assert found.at(2).precision_s == DAY_S + 1
    assert "line 2" in found.notes[0]


def test_lines_without_a_stamp_inherit() -> None:
    """The last stamp before a line, give or take the gap to the next; one side alone proves little."""
    file = FileClock()
    file.feed(10, read_stamp("2026-11-29 20:00:00 up"))
    file.feed(20, read_stamp("2026-11-29 20:00:30 up"))
    found = file.resolve()

    between, before, after = found.at(15), found.at(3), found.at(99)

    assert (between.at, between.precision_s, between.line) == (unix("2026-11-29T20:00:00"), 32.0, 10)
    assert (before.at, before.precision_s) == (unix("2026-11-29T20:00:00"), math.inf)
    assert (after.at, after.precision_s) == (unix("2026-11-29T20:00:30"), math.inf)


def test_the_files_end_bounds_its_last_lines() -> None:
    """With the zone known, a file's last change says how late its last lines may be."""
    found = clock("2026-11-29T20:00:00Z up", not_after=unix("2026-11-29T20:00:20"))

    assert (found.at(9).at, found.at(9).precision_s) == (unix("2026-11-29T20:00:00"), 21.0)


def test_a_file_without_stamps_knows_nothing() -> None:
    """No stamp at all: no time for any line."""
    found = clock("a", "b")

    assert (found.basis, found.at(1).at) == ("none", None)


def test_seconds_since_boot() -> None:
    """A kernel log counts from boot; beside dated lines it is placed by them alone."""
    alone = clock("[100.500000] a", "[101.500000] b")
    mixed = clock("2026-11-29T20:00:00Z up", "[100.500000] a", "2026-11-29T20:00:01Z up")

    assert (alone.basis, times(alone, 2)) == ("boot", [100.5, 101.5])
    assert mixed.at(2).at == unix("2026-11-29T20:00:00")


def test_a_zone_is_read_off_neighbouring_lines() -> None:
    """Local times between lines in UTC are of the only zone that keeps the lines in order."""
    pairs = [(f"2026-11-29T20:{m:02}:00Z up", f"2026-11-29 12:{m:02}:02 up") for m in range(4)]

    found = clock(*(line for pair in pairs for line in pair))

    assert found.zone
    assert found.at(2).at == unix("2026-11-29T20:00:02")
    assert "-8 h" in found.notes[0]


def test_a_zone_that_is_not_told_is_not_guessed() -> None:
    """A local time half an hour after the last one in UTC: a silence or a zone, and either may be."""
    found = clock("2026-11-29T20:00:00Z a", "2026-11-29T20:00:01Z b", "2026-11-29 20:30:00 c")

    assert found.at(3).precision_s > 14 * 3600
    assert found.at(1).precision_s == 1.0


def test_a_late_writer_is_not_a_zone() -> None:
    """One local line that a buffer held for an hour is no proof of a zone an hour behind."""
    found = clock("2026-11-29T20:40:00Z a", "2026-11-29 19:40:00 held", "2026-11-29T20:40:05Z b")

    assert found.at(2).at == unix("2026-11-29T19:40:00")
    assert found.at(2).precision_s > 14 * 3600


def test_a_schedulers_time_is_not_taken_for_the_ranks() -> None:
    """A cancel in another zone than the file's own lines is not believed to the second."""
    cancel = "slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT 2026-11-29T20:10:01 ***"

    agreeing = clock("[E1129 20:10:00 a.cpp:1] up", cancel, "[E1129 20:10:02 a.cpp:1] up")
    foreign = clock("[E1129 12:10:00 a.cpp:1] up", cancel, "[E1129 12:10:02 a.cpp:1] up")

    assert agreeing.at(2).precision_s == 1.0
    assert foreign.at(2).precision_s > 8 * 3600


def test_a_step_back_of_an_hour_is_doubted() -> None:
    """Clocks put back an hour: times of this file hold give or take as much."""
    found = clock("2026-10-25 02:59:59 a", "2026-10-25 02:00:01 b", "2026-10-25 02:10:00 c")

    assert found.jump_s == pytest.approx(3598)


STEADY = clock("2026-11-29T20:00:00Z up")
LOCAL = clock("2026-11-29 20:00:00 up")


def anchored(*rows: tuple[str, str, float], spread_s: float = 1.0, **more: Clock) -> Alignment:
    """Files by (key, file, time), all of known zone."""
    files = {file for _, file, _ in rows}
    clocks = dict.fromkeys(files, STEADY) | more
    return align(clocks, [Anchor(key, file, at, spread_s, 7, what=key) for key, file, at in rows])


def test_an_hour_between_two_files() -> None:
    """A step printed in both an hour apart: the offset, how exact, and by which lines."""
    found = anchored(("step 9", "a.err", 1000.0), ("step 9", "b.err", 4600.5))

    offset = found.offsets["b.err"]
    assert (offset.offset_s, offset.uncertainty_s, offset.zone_s) == (3600.5, 1.0, 3600.0)
    assert found.notes == (
        "b.err runs 3600.5 s ahead of a.err (within 1.0 s, +1 h of it a zone): step 9 at a.err:7 and b.err:7",
    )
    assert found.common("b.err", 4601.5) == 1001.0
    assert found.comparable("a.err", "b.err")


def test_more_anchors_narrow_the_offset() -> None:
    """Each anchor bounds the difference; what all allow is known."""
    found = anchored(("x", "a", 100.0), ("x", "b", 100.0), ("y", "a", 200.0), ("y", "b", 201.5), spread_s=1.0)

    assert found.difference("a", "b") == pytest.approx((0.5, 1.0))


def test_files_that_nothing_ties_are_not_comparable() -> None:
    """Without an anchor two clocks cannot be compared, even if both tell their zone; this is said."""
    found = anchored(("x", "a", 100.0), ("x", "b", 100.0), c=STEADY)

    assert not found.comparable("a", "c")
    assert found.uncertainty_s("a", "c") == math.inf
    assert found.common("c", 1.0) is None
    assert found.notes[-1].startswith("c: no event ties")


def test_anchors_reach_through_a_third_file() -> None:
    """a and c never saw one event, but both share one with b: the doubts add up."""
    found = anchored(("x", "a", 100.0), ("x", "b", 100.0), ("y", "b", 200.0), ("y", "c", 230.0))

    assert found.difference("a", "c") == pytest.approx((28.0, 32.0))


@pytest.mark.parametrize(
    ("clocks", "same"), [((STEADY, STEADY), True), ((LOCAL, LOCAL), True), ((STEADY, LOCAL), False)]
)
def test_files_of_one_host_share_a_clock(clocks: tuple[Clock, Clock], same: bool) -> None:
    """One host, one clock, unless only one of the files tells its zone."""
    found = align(dict(zip("ab", clocks, strict=True)), [], {"a": "node-1", "b": "node-1"})

    assert found.comparable("a", "b") is same
    assert found.uncertainty_s("a", "b") == (0.0 if same else math.inf)


def test_containers_of_one_host_may_differ_in_zone() -> None:
    """An event seen an hour apart by two local clocks of one host outweighs that it is one host."""
    anchors = [Anchor("x", "a", 100.0, 1.0), Anchor("x", "b", 3700.0, 1.0)]

    found = align({"a": LOCAL, "b": LOCAL}, anchors, {"a": "node-1", "b": "node-1"})

    assert found.offsets["b"].offset_s == pytest.approx(3600.0)


def test_a_clock_that_jumps_is_doubted_by_its_jump() -> None:
    """Two anchors that exclude one another: both readings stay possible, nothing is averaged."""
    rows = [(f"k{n}", file, 100.0 * n) for n in range(4) for file in "abc"]
    rows += [("k1", "d", 100.0), ("k2", "d", 245.0)]

    found = anchored(*rows)

    low, high = found.difference("a", "d")
    assert low <= -1.0
    assert high >= 46.0
    assert found.uncertainty_s("a", "b") == pytest.approx(1.0)
    assert found.uncertainty_s("d", "d") >= 45.0
    assert "disagree" in next(note for note in found.notes if note.startswith("d runs"))


def test_anchors_hours_apart_make_files_incomparable() -> None:
    """A contradiction of an hour leaves nothing to compare."""
    found = anchored(("x", "a", 100.0), ("x", "b", 100.0), ("y", "a", 200.0), ("y", "b", 3800.0))

    assert not found.comparable("a", "b")


def test_of_two_that_contradict_neither_is_trusted() -> None:
    """With two files nobody knows whose clock jumped: each one's own order is in doubt as well."""
    found = anchored(("x", "a", 100.0), ("x", "b", 100.0), ("y", "a", 200.0), ("y", "b", 245.0))

    assert found.first([Event("a", 100.0), Event("a", 130.0)]).sole is None
    assert found.first([Event("b", 100.0), Event("b", 130.0)]).sole is None


def test_a_circle_that_does_not_close_doubts_all_of_it() -> None:
    """Three files, three events, one of which must be wrong: for every pair both readings stay possible."""
    found = anchored(("x", "a", 0.0), ("x", "b", 0.0), ("y", "b", 90.0), ("y", "c", 90.0),
                     ("z", "a", 200.0), ("z", "c", 240.0))  # fmt: skip

    for pair in (("a", "b"), ("a", "c"), ("b", "c")):
        low, high = found.difference(*pair)
        assert low <= 0.0
        assert high >= 40.0


def test_two_that_disagree_behind_a_loose_reference_are_doubted() -> None:
    """b and c part by 30 s while a, tied to within a minute, sees nothing: c's own order is in doubt."""
    loose = [Anchor(f"l{n}", file, 100.0 * n, 60.0) for n in range(3) for file in "abc"]
    tight = [Anchor("x", "b", 20.0, 1.0), Anchor("x", "c", 20.0, 1.0)]
    tight += [Anchor("y", "b", 150.0, 1.0), Anchor("y", "c", 180.0, 1.0)]

    found = align(dict.fromkeys("abc", STEADY), loose + tight)

    assert max(found.uncertainty_s(file, file) for file in "bc") >= 30.0


def test_a_key_said_again_and_again_ties_loosely() -> None:
    """One file says the event twice, ten seconds apart: it lies somewhere among them."""
    found = anchored(("x", "a", 100.0), ("x", "b", 100.0), ("x", "b", 110.0))

    assert found.difference("a", "b") == pytest.approx((-1.0, 11.0))


def test_first_beyond_doubt() -> None:
    """Sole first only by more than all doubts; what cannot be compared stays a candidate."""
    found = anchored(("x", "a", 100.0), ("x", "b", 100.0), c=STEADY)
    early, late, close = Event("a", 200.0), Event("b", 210.0), Event("b", 200.9)

    assert found.first([late, early]).sole == early
    assert found.first([early, close]).candidates == (early, close)
    assert found.first([early, late, Event("c", 300.0)]).sole is None
    assert found.first([early, Event("b", None)]).sole is None
    assert found.first([Event("a", 200.0, math.inf), late]).sole is None
    assert found.first([]).candidates == ()


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, float], list[Anchor], list[tuple[Event, float]]]:
    """Files with skews and zones, anchors that keep their word, and events whose true times are known."""
    files = [f"f{n}" for n in range(draw(st.integers(2, 6)))]
    skew = st.floats(-30, 30) | st.integers(-56, 56).map(lambda n: n * 900.0)
    offsets = {file: draw(skew) for file in files}
    anchors = []
    for n in range(draw(st.integers(1, 6))):
        true, spread = draw(st.floats(0, 5000)), draw(st.floats(0, 60))
        for file in draw(st.lists(st.sampled_from(files), min_size=2, unique=True)):
            written = true + draw(st.floats(0, 1)) * spread
            error = draw(st.floats(-1, 1)) * 0.5
            anchors.append(Anchor(f"k{n}", file, written + offsets[file] + error, spread, n, 0.5))
    events = []
    for _ in range(draw(st.integers(1, 5))):
        file, true, precision = draw(st.sampled_from(files)), draw(st.floats(0, 5000)), draw(st.floats(0, 60))
        error = draw(st.floats(-1, 1)) * precision
        events.append((Event(file, true + offsets[file] + error, precision), true))
    return offsets, anchors, events


@settings(deadline=None, max_examples=200)
@given(worlds())
def test_skews_and_zones_are_recovered(
    world: tuple[dict[str, float], list[Anchor], list[tuple[Event, float]]],
) -> None:
    """Whatever the skews, zones and anchors: the true difference lies in the bounds, and none is doubted."""
    offsets, anchors, _ = world

    found = align(dict.fromkeys(offsets, STEADY), anchors)

    for a in offsets:
        for b in offsets:
            low, high = found.difference(a, b)
            assert low - 1e-3 <= offsets[b] - offsets[a] <= high + 1e-3
    assert all(offset.contradiction_s == 0 for offset in found.offsets.values())


@settings(deadline=None, max_examples=200)
@given(worlds())
def test_first_is_first(world: tuple[dict[str, float], list[Anchor], list[tuple[Event, float]]]) -> None:
    """The event that truly was first is always a candidate: no other is ever named alone."""
    offsets, anchors, events = world
    found = align(dict.fromkeys(offsets, STEADY), anchors)

    named = found.first([event for event, _ in events])

    truly = min(true for _, true in events)
    assert any(true - truly < 1e-3 for event, true in events if event in named.candidates)
    assert named.sole is None or named.candidates == (named.sole,)


@settings(deadline=None, max_examples=200)
@given(worlds(), st.data())
def test_a_jump_never_names_the_wrong_one(
    world: tuple[dict[str, float], list[Anchor], list[tuple[Event, float]]], data: st.DataObject
) -> None:
    """A clock that jumps midway, where anchors show it from both sides: still nobody is first who was not."""
    offsets, _, events = world
    jumper, jump, at = "f0", data.draw(st.floats(-400, 400)), data.draw(st.floats(500, 4500))
    truth = lambda file, true: offsets[file] + (jump if file == jumper and true > at else 0.0)  # noqa: E731
    anchors = [
        Anchor(f"k{n}", file, n * 499.0 + truth(file, n * 499.0), 1.0) for n in range(11) for file in offsets
    ]
    moved = [(Event(e.file, true + truth(e.file, true), e.precision_s), true) for e, true in events]

    named = align(dict.fromkeys(offsets, STEADY), anchors).first([event for event, _ in moved])

    truly = min(true for _, true in moved)
    # A jump smaller than what anchors allow shows nowhere: such doubt is theirs.
    assert any(true - truly <= 2.0 for event, true in moved if event in named.candidates)


def test_many_files_at_once() -> None:
    """Hundreds of node files with a hundred steps each, all with their own skew."""
    skews = {f"n{n:03}": n * 0.01 for n in range(200)}
    anchors = [
        Anchor(f"s{step}", file, step * 5.0 + skew, 2.0) for step in range(50) for file, skew in skews.items()
    ]

    found = align(dict.fromkeys(skews, STEADY), anchors)

    low, high = found.difference("n000", "n150")
    assert low <= 1.5 <= high
    assert len(found.notes) == 199
