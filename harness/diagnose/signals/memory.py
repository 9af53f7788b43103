"""Memory over steps: an allocator that holds ever more than is in use, a process that never gives back."""

import numpy as np

from harness.diagnose.signals.columns import Floats
from harness.diagnose.signals.steps import Both, Steps, change_point, rising
from harness.diagnose.signals.wording import at_first, cite, figures, size, who
from harness.model.diagnosis import Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

LONG_RUN_S = 600.0
"""From here on growth an hour can be told; before, growth a step is all there is."""


def fragmentation(steps: Steps) -> Finding | None:
    """Inactive bytes that grow window by window while the bytes in use stay flat."""
    needed = ("mem_inactive_split", "mem_allocated_peak", "mem_reserved_peak")
    if not steps.has(*needed):
        return None
    inactive, used, held = (steps.both(name) for name in needed)
    ranks = tuple(r for r in steps.ranks if _splits(steps, r, inactive[r], used[r], held[r]))
    if not ranks:
        return None
    some = ranks if 2 * len(ranks) < len(steps.ranks) else ()
    worst = max(ranks, key=lambda r: inactive[r].now)
    retries = _grew(steps, "num_alloc_retries", ranks)
    slower = steps.job("step_time_s")
    certain = retries or slower.growth > steps.limits.slower
    shown = at_first("held and not in use", inactive[worst], size)
    slow = at_first("steps take", slower)
    return Finding(
        source="signal",
        kind=Kind.MEMORY_FRAGMENTATION,
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
        summary=(
            f"the allocator of {who(ranks)} holds ever more than is in use: {shown}, while use stays at "
            f"{size(used[worst].now)}; {'allocations are retried' if retries else slow}"
        ),
        culprits=some,
        victims=tuple(r for r in steps.ranks if r not in some),
        where=Where(step=_begun(steps, "mem_inactive_split", worst, inactive[worst]), site="allocator"),
        evidence=tuple(
            cite(steps, r, f"rank {r}: {figures(steps, name, both[r], size)}")
            for r in (some or ranks)[:2]
            for name, both in (("inactive", inactive), ("in use", used), ("reserved", held))
        ),
        chain=("blocks are split and cannot be joined again", "-> allocations find no room that is whole"),
    )


def leak(steps: Steps, host_bytes: float | None) -> Finding | None:
    """Resident memory that rises in nine of ten windows, fast, and is not what the allocator holds.

    Pages of files that a rank maps, as a loader does, count as resident too, and are no leak: where the
    records do not tell them apart, a rank is only suspected.
    """
    if not steps.has("rss_bytes"):
        return None
    resident = steps.both("rss_bytes")
    ranks = tuple(r for r in steps.ranks if _leaks(steps, r, resident[r], host_bytes))
    sure = steps.has("rss_shared_bytes")
    if not ranks:
        return None
    some = ranks if 2 * len(ranks) < len(steps.ranks) else ()
    worst = max(ranks, key=lambda r: resident[r].now - resident[r].early)
    return Finding(
        source="signal",
        kind=Kind.HOST_MEMORY_LEAK,
        confidence=(Confidence.CERTAIN if some else Confidence.LIKELY) if sure else Confidence.POSSIBLE,
        summary=(
            f"resident memory of {who(ranks)} grows by "
            f"{size(_a_step(steps, resident[worst]))} a step: "
            f"{at_first('it is', resident[worst], size)}"
        ),
        culprits=some if sure else (),
        suspects=() if sure else some,
        victims=tuple(r for r in steps.ranks if r not in some),
        where=Where(step=_begun(steps, "rss_bytes", worst, resident[worst])),
        evidence=tuple(
            cite(steps, r, f"rank {r}: {figures(steps, 'resident', resident[r], size)}")
            for r in (some or ranks)[:3]
        ),
        chain=("something is kept of every step", "-> the host runs out of memory"),
    )


def _splits(steps: Steps, rank: int, inactive: Both, used: Both, held: Both) -> bool:
    limits = steps.limits
    grown = inactive.now - inactive.early
    flat = abs(used.now - used.early) <= limits.flat * used.early + grown / 4
    return bool(
        _still_grows(steps, "mem_inactive_split", rank, _a_step(steps, inactive))
        and inactive.growth > limits.inactive_growth
        and inactive.now > limits.inactive_share * held.now
        and flat
        and rising(_since_change(steps, "mem_inactive_split", rank, inactive)) >= limits.rising_windows
    )


def _leaks(steps: Steps, rank: int, resident: Both, host_bytes: float | None) -> bool:
    limits = steps.limits
    a_step = _a_step(steps, resident)
    if steps.has("rss_shared_bytes"):
        a_step -= max(0.0, _a_step(steps, steps.both("rss_shared_bytes")[rank]))
    if not _still_grows(steps, "rss_bytes", rank, a_step):
        return False
    if steps.has("mem_inactive_split"):
        # Where it is the allocator that holds on, fragmentation says so; on GPUs this is another memory.
        held = steps.both("mem_inactive_split")[rank]
        if 2 * (held.now - held.early) > resident.now - resident.early:
            return False
    if rising(_since_change(steps, "rss_bytes", rank, resident)) < limits.rising_windows:
        return False
    took = steps.job("step_time_s").now
    if host_bytes and took * (steps.last - steps.first) > LONG_RUN_S:
        return bool(a_step * 3600 / took > limits.leak_host_share_an_hour * host_bytes)
    return a_step > limits.leak_bytes_a_step


def _a_step(steps: Steps, both: Both) -> float:
    """Growth a step between the middles of the two windows."""
    assert steps.windows is not None
    early, now = steps.windows
    return (both.now - both.early) / max(1, (now.first + now.last - early.first - early.last) / 2)


def _still_grows(steps: Steps, field: str, rank: int, a_step: float) -> bool:
    """Whether it grows in the present window at half its usual pace: a cache that fills up does not."""
    assert steps.windows is not None
    now = steps.windows[1]
    values = _values(steps, field, rank)[now.cells]
    halves = [part[~np.isnan(part)] for part in np.array_split(values, 2)]
    if any(not len(part) for part in halves):
        return False
    grown = float(np.median(halves[1]) - np.median(halves[0]))
    return grown / max(1, (now.last - now.first + 1) / 2) >= a_step / 2


def _begun(steps: Steps, field: str, rank: int, both: Both) -> int:
    """The step from which on a field stands clearly above its early value: a tenth of the way up to now."""
    return steps.since(_values(steps, field, rank), _clearly_above(both))


def _clearly_above(both: Both) -> float:
    return both.early + 0.1 * (both.now - both.early)


def _values(steps: Steps, field: str, rank: int) -> Floats:
    row: Floats = steps.matrix(field)[steps.ranks.index(rank)]
    return row


def _since_change(steps: Steps, field: str, rank: int, both: Both) -> Floats:
    """A rank's values from where they left their early level: what grows only since yesterday grows."""
    values = _values(steps, field, rank)
    begin = change_point(values, _clearly_above(both))
    # All of the present window at least: a step up that happened once is not growth.
    assert steps.windows is not None
    begin = min(begin, steps.windows[1].cells.start)
    out: Floats = values[begin:]
    return out


def _grew(steps: Steps, field: str, ranks: tuple[int, ...]) -> bool:
    if not steps.has(field):
        return False
    both = steps.both(field)
    return any(both[r].now > max(both[r].early, 0) for r in ranks)
