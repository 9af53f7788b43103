"""Figures as people read them."""

from collections.abc import Sequence


def seconds(value: float) -> str:
    """A duration with three figures and a unit that fits.

    >>> seconds(0.0123), seconds(2.5), seconds(0.00004)
    ('12.3 ms', '2.50 s', '40.0 us')
    """
    size = abs(value)
    for limit, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "us")):
        if size >= limit:
            scaled = value * factor
            digits = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0
            return f"{scaled:.{digits}f} {unit}"
    raise AssertionError("every number is at least zero")


def grown(value: float) -> str:
    """The same with its sign."""
    return f"{'+' if value >= 0 else ''}{seconds(value)}"


def steps_text(steps: Sequence[int]) -> str:
    """Which steps a figure is the median of."""
    if list(steps) == [-1]:
        return "the whole trace"
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]}-{steps[-1]}"


def ranks_text(ranks: str) -> str:
    """``rank 3`` or ``ranks 0-2``."""
    return f"rank {ranks}" if ranks.isdigit() else f"ranks {ranks}"
