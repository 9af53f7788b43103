"""How figures of step records are worded and cited."""

import math
from collections.abc import Callable, Iterable

from harness.diagnose.signals.steps import Both, Steps
from harness.model.diagnosis import Citation
from harness.model.ranks import format_ranks


def seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    if math.isnan(value):
        return "unknown"
    if abs(value) >= 1:
        return f"{value:.1f} s"
    return f"{value * 1000:.1f} ms" if abs(value) >= 0.0005 else f"{value * 1e6:.0f} us"


def size(value: float) -> str:
    """A number of bytes in the unit that suits it."""
    if math.isnan(value):
        return "unknown"
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"


def share(value: float) -> str:
    """A share as percent."""
    return "unknown" if math.isnan(value) else f"{100 * value:.0f} %"


def who(ranks: Iterable[int]) -> str:
    """Ranks as the subject of a sentence."""
    found = tuple(ranks)
    return f"rank {found[0]}" if len(found) == 1 else f"ranks {format_ranks(found)}"


def verb(ranks: Iterable[int], one: str, many: str) -> str:
    """The verb that agrees with so many ranks."""
    return one if len(tuple(ranks)) == 1 else many


def cite(steps: Steps, rank: int, says: str) -> Citation:
    """A claim about a rank's present window, at its first record there."""
    line = steps.line_of(rank, steps.windows[1]) if steps.windows else None
    return Citation("signal", says, steps.history(rank).file, line, rank=rank)


def at_first(name: str, both: Both, form: Callable[[float], str] = seconds) -> str:
    """A figure now and at first, for a sentence; evidence says which steps each is of."""
    return f"{name} {form(both.now)}, {form(both.early)} at first"


def figures(steps: Steps, name: str, both: Both, form: Callable[[float], str] = seconds) -> str:
    """A figure in both windows: now, and in the run's own beginning."""
    assert steps.windows is not None
    early, now = steps.windows
    return f"{name} {form(both.now)} in {now}, {form(both.early)} in {early}"
