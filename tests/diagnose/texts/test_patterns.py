"""Compiling patterns."""

import threading

import hyperscan
import pytest

from harness.diagnose.texts.patterns import ID_BITS, Database, Pattern


def test_patterns_are_compiled_meanwhile() -> None:
    """By a thread that is gone once they are ready: a process may then be forked."""
    before = threading.active_count()
    database = Database([Pattern("A", "abc"), Pattern("B", "bcd")])

    database.begin()
    database.begin()
    database.ready()

    assert threading.active_count() == before
    assert [hit >> ID_BITS for hit in database.scan(memoryview(b"xabcd"))] == [4, 5]


def test_a_pattern_that_is_none_is_said_where_it_is_needed() -> None:
    """Not by the thread that compiles, whom nobody hears."""
    database = Database([Pattern("A", "(")])
    database.begin()

    with pytest.raises(hyperscan.error):
        database.ready()


def test_no_patterns_match_nothing() -> None:
    """Hyperscan itself refuses an empty database."""
    assert Database([]).scan(memoryview(b"abc")) == []
