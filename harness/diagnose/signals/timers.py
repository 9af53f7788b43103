"""Reports that name the slowest rank themselves: Megatron's straggler detector."""

from collections import Counter
from collections.abc import Sequence

from harness.diagnose.signals.formats.foreign import TimerRow
from harness.diagnose.signals.wording import share
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

SPREAD = 0.2
"""The slowest rank takes so much longer than the quickest (DIAGNOSIS, thresholds: timer spread)."""

ALWAYS = 0.8
LEAST_REPORTS = 3
COOL_MHZ = 0.85
"""A slowest rank whose card ran below so much of the fastest clock was throttled."""


def always_last(timers: Sequence[TimerRow], world_size: int) -> Finding | None:
    """The rank whose round trip is the longest in nearly every report, by more than a fifth: a suspect.

    One number over all ranks says who was last, not what the others waited for: it never convicts.
    """
    trips = [row for row in timers if row.name == "Rtt" and row.max_rank is not None]
    if len(trips) < LEAST_REPORTS:
        return None
    (rank, count), *_ = Counter(row.max_rank for row in trips).most_common()
    apart = [row for row in trips if row.max_rank == rank and row.max > (1 + SPREAD) * row.min]
    if rank is None or count < ALWAYS * len(trips) or len(apart) < ALWAYS * len(trips):
        return None
    last = apart[-1]
    clocks = [row for row in timers if row.name == "Clk" and row.min_rank == rank]
    cool = [row for row in clocks if row.min < COOL_MHZ * row.max]
    throttled = 2 * len(cool) > len(trips)
    slower = share(last.max / last.min - 1)
    clock = (
        f"; its clock is {cool[-1].min:.0f} MHz where others run {cool[-1].max:.0f} MHz" if throttled else ""
    )
    cited = [
        Citation(
            "signal", f"slowest: rank {rank}, {slower} behind the quickest", last.file, last.line, rank=rank
        )
    ]
    if throttled:
        cited.append(
            Citation("gpu", f"rank {rank}: {cool[-1].min:.0f} MHz", cool[-1].file, cool[-1].line, rank=rank)
        )
    return Finding(
        source="signal",
        kind=Kind.STRAGGLER,
        confidence=Confidence.LIKELY if throttled else Confidence.POSSIBLE,
        summary=(
            f"rank {rank} is the slowest in {count} of {len(trips)} reports of the straggler detector, "
            f"{slower} behind the quickest{clock}"
        ),
        suspects=(rank,),
        victims=tuple(r for r in range(world_size) if r != rank),
        where=Where(
            step=apart[0].step, site="throttle" if throttled else "compute", factor=last.max / last.min
        ),
        evidence=tuple(cited),
        chain=(f"rank {rank}: last in every report", "-> all others wait for it"),
    )
