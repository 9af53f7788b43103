"""Covers against plain sets of moments."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.diagnose.traces.intervals import both, cover, innermost

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def array(values: object) -> np.ndarray:
    return np.array(list(values), np.int64)  # type: ignore[call-overload]


def moments(spans: list[tuple[int, int]]) -> set[int]:
    return {m for begin, end in spans for m in range(begin, end)}


def of(spans: list[tuple[int, int]]) -> object:
    return cover(array(b for b, _ in spans), array(e for _, e in spans))


@settings(deadline=None)
@given(SPANS, SPANS, SPANS)
def test_length_counts_moments(
    spans: list[tuple[int, int]], more: list[tuple[int, int]], windows: object
) -> None:
    """What a cover measures in any window is the number of moments in it, also after a union."""
    begin = array(min(w) for w in windows)
    end = array(max(w) for w in windows)
    expected = [len(moments([*spans, *more]) & set(range(b, e))) for b, e in zip(begin, end, strict=True)]

    assert both(of(spans), of(more)).length(begin, end).tolist() == expected


@settings(deadline=None)
@given(SPANS)
def test_holds_is_membership(spans: list[tuple[int, int]]) -> None:
    """A moment is held if an interval contains it; ends do not count."""
    held = of(spans).holds(array(range(62)))

    assert set(np.flatnonzero(held).tolist()) == moments(spans)


@settings(deadline=None)
@given(st.data())
def test_innermost_is_the_shortest_that_contains(data: st.DataObject) -> None:
    """For nested spans the innermost at a moment is the one with the latest begin that still runs."""
    spans: list[tuple[int, int]] = []

    def nest(begin: int, end: int, depth: int) -> None:
        while end - begin >= 2 and depth and data.draw(st.booleans()):
            b = data.draw(st.integers(begin, end - 1))
            e = data.draw(st.integers(b + 1, end))
            if (b, e) not in spans:
                spans.append((b, e))
                nest(b + 1, e, depth - 1)
            begin = e

    nest(0, 40, 4)
    found = innermost(array(b for b, _ in spans), array(e for _, e in spans), array(range(len(spans))))

    for moment in range(42):
        containing = [i for i, (b, e) in enumerate(spans) if b <= moment < e]
        expected = max(containing, key=lambda i: spans[i][0], default=-1)
        assert found.at(array([moment])).tolist() == [expected]
