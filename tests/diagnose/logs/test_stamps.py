"""Times of log lines, in every style that training logs mix."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.diagnose.logs.stamps import (
    DAY_S,
    MAX_CHARS,
    YEARLESS,
    Stamp,
    read_stamp,
    read_stamps,
    slurm_time,
)

MOMENT = datetime(2026, 11, 29, 20, 10, 0, tzinfo=timezone.utc)
AT = MOMENT.timestamp()
OF_DAY = 20 * 3600 + 10 * 60.0
YEARLESS_AT = MOMENT.replace(year=YEARLESS).timestamp()


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2026-11-29T20:10:00Z up", Stamp(AT, True, True, True, 1.0, "iso")),
        ("2026-11-29T20:10:00.250+01:00 up", Stamp(AT + 0.25 - 3600, True, True, True, 0.001, "iso")),
        ("2026-11-29 20:10:00 -0330 up", Stamp(AT + 3.5 * 3600, True, True, True, 1.0, "iso")),
        ("2026-11-29 20:10:00,250 - INFO - up", Stamp(AT + 0.25, True, True, False, 0.001, "iso")),
        (" [2026-11-29 20:10:00] iteration    12/ 500 |", Stamp(AT, True, True, False, 1.0, "iso")),
        ("[NeMo W 2026-11-29 20:10:00 nemo_logging:349] up", Stamp(AT, True, True, False, 1.0, "iso")),
        ("  time      : 2026-11-29_20:10:00", Stamp(AT, True, True, False, 1.0, "torchrun")),
        ("2026/11/29 20:10:00 [error] up", Stamp(AT, True, True, False, 1.0, "nginx")),
        ("11/29/2026 20:10:00 - INFO - up", Stamp(AT, True, True, False, 1.0, "us")),
        ("[rank3]:[E1129 20:10:00.5 a.cpp:6] up", Stamp(YEARLESS_AT + 0.5, True, False, False, 0.1, "glog")),
        ("W1129 20:10:00.25 1 a.py:7] up", Stamp(YEARLESS_AT + 0.25, True, False, False, 0.01, "glog")),
        ("[12345.678000] NVRM: Xid", Stamp(12345.678, False, False, False, 1e-6, "kernel")),
        ("[Sun Nov 29 20:10:00 2026] NVRM: Xid", Stamp(AT, True, True, False, 1.0, "ctime")),
        ("Sun Nov 29 20:10:00 UTC 2026", Stamp(AT, True, True, True, 1.0, "ctime")),
        ("Nov 29 20:10:00 node kernel: NVRM: Xid", Stamp(YEARLESS_AT, True, False, False, 1.0, "syslog")),
        ("E 20:10:00.250000 target.go:12 up", Stamp(OF_DAY + 0.25, False, False, False, 1e-6, "ais")),
        ("common:123 29 Nov 26 20:10 UTC", Stamp(AT, True, True, True, 60.0, "rfc")),
        ("10.0.0.1 - - [29/Nov/2026:20:10:00 +0000] GET", Stamp(AT, True, True, True, 1.0, "rfc")),
        ("11: 20:10:00.250 up", Stamp(OF_DAY + 0.25, False, False, False, 0.001, "time")),
        (f'{{"level":"info","ts": {AT:.1f}}}', Stamp(AT, True, True, True, 0.1, "epoch")),
        (f'{{"time_us": {AT * 1e6:.0f}}}', Stamp(AT, True, True, True, 1e-6, "epoch")),
    ],
)  # fmt: skip
def test_each_style(text: str, stamp: Stamp) -> None:
    """Each style says the same moment, and how exactly."""
    read = read_stamp(text)

    assert read is not None
    assert read.seconds == pytest.approx(stamp.seconds, abs=1e-6)
    assert (read.dated, read.has_year, read.zone) == (stamp.dated, stamp.has_year, stamp.zone)
    assert (read.precision_s, read.style) == (pytest.approx(stamp.precision_s), stamp.style)


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30 20:10:00 up",
        "2026-11-29T25:10:00Z up",
        "2026-11-29 20:61:00 up",
        "E1332 20:10:00.1 a.cpp:1] up",
        "Timeout (0:05:00)!",
        "ETA: 03:12:44",
        "elapsed 00:12:33",
        "NVRM: Xid (PCI:0000:3b:00): 79",
        " 13%|#  | 137/1000 [00:10:20<01:00:00,  1.2it/s]",
        "fe80:12:34:56:78:9a",
        "losses are then [0.123456] at most",
        '{"ts": 12}',
        "",
    ],
)
def test_no_time(text: str) -> None:
    """Impossible dates, durations, addresses and values are no times."""
    assert read_stamp(text) is None


@pytest.mark.parametrize(
    ("text", "style", "at"),
    [
        ("2026-11-29T20:10:01Z host [stderr] 2026-11-29 12:10:00,000 up", "iso", AT + 1),
        ("2026-11-29 20:10:01 | 2026-11-29 20:10:00 up", "iso", AT),
        ("2026-11-29 20:10:00 INFO last checkpoint: 2026-11-29 19:00:00", "iso", AT),
        ("2026-11-29 20:10:00 error: CANCELLED AT 2026-11-29T20:40:01", "iso", AT),
        ("Nov 29 20:10:00 node kernel: [12345.678901] NVRM", "syslog", YEARLESS_AT),
        ("Nov 29 20:10:00 node kernel: [Sun Nov 29 20:10:00 2026] NVRM", "ctime", AT),
        ("1%| | 1/9 [00:00:12<00:01:00][rank1]:[E1129 20:10:00 a.cpp:1] up", "glog", YEARLESS_AT),
        ("[E1129 20:10:00 a.cpp:1] a [E1129 20:40:00 a.cpp:1] interleaved", "glog", YEARLESS_AT),
    ],
)
def test_which_of_several(text: str, style: str, at: float) -> None:
    """A zone wins, else the last in front; a time that the message speaks of never does."""
    read = read_stamp(text)

    assert read is not None
    assert (read.style, read.seconds) == (style, at)


def test_a_receivers_lag_is_part_of_the_precision() -> None:
    """The receiver's zoned time stands for the program's own as exactly as the two agree, zones apart."""
    read = read_stamp("2026-11-29T20:10:40Z | 2026-11-29 12:10:00,000 up")

    assert read is not None
    assert (read.seconds, read.precision_s) == (AT + 40, 40.0)


def test_a_time_in_the_message_counts_if_there_is_no_other() -> None:
    """The scheduler's line has no time but the one it speaks of; with the message cut off, none."""
    line = "slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT 2026-11-29T20:10:00 DUE TO TIME LIMIT ***"

    read = read_stamp(line)

    assert read is not None
    assert (read.style, read.seconds) == ("slurm", AT)
    assert read_stamp(line, before=len("slurmstepd: error: ")) is None


def test_slurm_time() -> None:
    """The cancel's own time can be had beside the line's."""
    line = "2026-11-29T21:10:09Z error: *** JOB 1 ON n CANCELLED AT 2026-11-29T20:10:00 ***"

    told = slurm_time(line)

    assert told == Stamp(AT, True, True, False, 1.0, "slurm")
    assert slurm_time("CANCELLED AT 2026-13-29T20:10:00") is None


def test_positions() -> None:
    """All times of a line are given with where they stand and whether they lead."""
    line = "2026-11-29 20:10:00 INFO running since 2026-11-28 20:10:00"

    found = read_stamps(line)

    assert [line[f.start : f.end] for f in found] == ["2026-11-29 20:10:00", "2026-11-28 20:10:00"]
    assert [f.leads for f in found] == [True, False]


def test_only_the_front_of_a_long_line_is_read() -> None:
    """What stands behind the cut is not found, and hostile lines give few stamps."""
    assert read_stamp("x" * MAX_CHARS + "2026-11-29 20:10:00") is None
    assert len(read_stamps("20:10:00 " * 500)) <= 12


def glog(t: datetime) -> str:
    return f"[rank0]:[E{t:%m%d %H:%M:%S.%f} ProcessGroupNCCL.cpp:629] up"


STYLES: list[tuple[Callable[[datetime], str], str]] = [
    (lambda t: f"{t:%Y-%m-%dT%H:%M:%S.%f}Z up", "unix"),
    (lambda t: f"{t.astimezone(timezone(timedelta(hours=-9.5))).isoformat()} up", "unix"),
    (lambda t: f"{t:%Y-%m-%d %H:%M:%S},{t.microsecond // 1000:03d} - INFO - up", "unix"),
    (lambda t: f"  time      : {t:%Y-%m-%d_%H:%M:%S}", "unix"),
    (lambda t: f"{t:%Y/%m/%d %H:%M:%S} [error] up", "unix"),
    (lambda t: f"[{t:%a %b %e %H:%M:%S %Y}] NVRM: Xid", "unix"),
    (lambda t: f"{t:%m/%d/%Y %H:%M:%S} - INFO - up", "unix"),
    (lambda t: f"common:123 {t:%d %b %y %H:%M} UTC", "unix"),
    (lambda t: f"[{t:%d/%b/%Y:%H:%M:%S} +0000] up", "unix"),
    (lambda t: f'{{"ts": {t.timestamp():.3f}, "msg": "up"}}', "unix"),
    (glog, "year"),
    (lambda t: f"{t:%b %e %H:%M:%S} node-1 kernel: up", "year"),
    (lambda t: f"E {t:%H:%M:%S.%f} target.go:12 up", "day"),
    (lambda t: f"0: {t:%H:%M:%S} up", "day"),
    (lambda t: f"[{t.timestamp() % 1e6:12.6f}] up", "boot"),
]


@settings(deadline=None)
@given(
    moment=st.datetimes(datetime(2001, 9, 10), datetime(2068, 12, 31)).map(
        lambda t: t.replace(tzinfo=timezone.utc)
    ),
    style=st.sampled_from(STYLES),
)
def test_any_moment_reads_back(moment: datetime, style: tuple[Callable[[datetime], str], str]) -> None:
    """A moment printed in any style reads back to itself, within the precision of the style."""
    printed, kind = style
    at = moment.timestamp()
    expected = {
        "unix": at,
        "boot": at % 1e6,
        "year": moment.replace(year=YEARLESS).timestamp(),
        "day": at % DAY_S,
    }[kind]

    read = read_stamp(printed(moment))

    assert read is not None
    assert abs(expected - read.seconds) <= read.precision_s + 1e-5
    assert (read.dated, read.has_year) == (kind in ("unix", "year"), kind == "unix")


@settings(deadline=None)
@given(st.text(alphabet="0123456789:-/., []()TZE<>+_NovSun\r\"'=ts", max_size=300), st.integers(0, 300))
def test_no_line_raises(text: str, before: int) -> None:
    """Whatever a line holds, reading it gives stamps inside it, in order."""
    found = read_stamps(text, before)

    assert all(0 <= f.start < f.end <= len(text) and f.start < before for f in found)
    assert [f.start for f in found] == sorted(f.start for f in found)
