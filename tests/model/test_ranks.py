"""Sets of ranks as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model.ranks import format_ranks, parse_ranks


@given(st.sets(st.integers(0, 2000)))
def test_what_is_written_is_read_back(ranks: set[int]) -> None:
    """Formatting loses nothing."""
    assert parse_ranks(format_ranks(ranks)) == tuple(sorted(ranks))


def test_ranges_are_short() -> None:
    """A thousand ranks fit on a line."""
    assert format_ranks(set(range(1024)) - {5}) == "0-4,6-1023"


@pytest.mark.parametrize("text", ["five", "1-", "-1", "3-1", "1.5"])
def test_nonsense_is_refused(text: str) -> None:
    """What is no rank is named."""
    with pytest.raises(ValueError, match="give"):
        parse_ranks(text)
