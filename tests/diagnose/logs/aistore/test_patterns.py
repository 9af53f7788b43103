"""Lines that mean something, and lines that only look so."""

import pytest

from harness.diagnose.logs.aistore.patterns import PATTERN, find_pattern

from .made import BROKEN, DISK, DROPPED, LOST, OOM, PRESSURE


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (LOST, "batch_lost"),
        (BROKEN, "stream_broken"),
        (DROPPED, "recv_dropped"),
        ("x-get-batch[Kq3v] aborted: t2 is gone", "batch_aborted"),
        (PRESSURE, "pressure"),
        ("resource pressure: loadcritical", "pressure"),
        (DISK, "disk_critical"),
        ("gc: free mem 1.2GiB", "memory"),
        (OOM, "memory"),
    ],
)
def test_each_pattern_is_found(line: str, name: str) -> None:
    """The words in their order make the pattern, and it has a meaning."""
    assert find_pattern(f"W 20:10:00.123456 moss:88 {line}") == name
    assert PATTERN[name].meaning


@pytest.mark.parametrize(
    "line",
    [
        "out-of-bounds index in x-get-batch",
        "shared-dm opened; later: broken pipe",
        "classroom: 3",
        "resource pressure: load=high",
        "lgc: free mem",
        "shared-dm" * 500 + "terminated" * 400 + "broken pip",
    ],
)
def test_words_out_of_order_or_inside_others_are_nothing(line: str) -> None:
    """Half a pattern, another level, or a longer word does not count."""
    assert find_pattern(line) is None
