"""Counters in stats lines."""

import pytest

from harness.diagnose.logs.aistore.counters import read_counters, stepped_back
from harness.diagnose.logs.aistore.model import TRACKED

NONE = (0,) * len(TRACKED)


def counted(**given: int) -> tuple[int, ...]:
    """Values in the order of TRACKED."""
    return tuple(given.get(name.replace(".", "_"), 0) for name in TRACKED)


@pytest.mark.parametrize(
    "text",
    [
        "{err.get.n:12,get.bps:5,get.n:88123,get.ns.total:9}",
        '{"err.get.n":12,"get.n":88123}',
        '{"err.get.n": "12", "get.n": "88123"}',
        "kvstats: err.get.n=12 get.n=88123 up=1",
    ],
)
def test_counters_are_read_in_every_form(text: str) -> None:
    """Pseudo-JSON, JSON and key=value give the same numbers."""
    assert read_counters(text, NONE) == counted(err_get_n=12, get_n=88123)


def test_look_alike_counters_are_left_alone() -> None:
    """Counters whose names only contain a tracked name are others."""
    assert (
        read_counters("{err.io.get.n:5,aws.get.n:3,get.ns:7,stream.in.n:2,ratelim.retry.get.n:1}", NONE)
        is None
    )


def test_what_a_whole_line_lacks_is_zero_and_what_a_cut_one_lacks_is_as_before() -> None:
    """Zeros are not written; a line that was cut says nothing of the rest."""
    before = counted(get_n=10, err_get_n=4)

    assert read_counters("{get.n:11}", before) == counted(get_n=11)
    assert read_counters("{get.n:11,put.n", before) == counted(get_n=11, err_get_n=4)


def test_errors_alone_can_be_reset_without_a_restart() -> None:
    """Fewer errors are a reset by hand; fewer requests are a new process."""
    before = counted(get_n=10, err_get_n=4)

    assert not stepped_back(before, counted(get_n=11))
    assert stepped_back(before, counted(get_n=1, err_get_n=4))


def test_a_hostile_line_is_read_in_bounded_steps() -> None:
    """Half a MiB of near misses gives nothing, and comes to an end."""
    assert read_counters("err.get." * 65536 + "n", NONE) is None
