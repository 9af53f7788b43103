"""The questions that decide what is worked on first, answered in GPU hours and money."""

from collections.abc import Iterator
from dataclasses import dataclass

from harness.postmortem.costs import (
    DAY_S,
    HOUR_S,
    Fleet,
    Split,
    lost_share,
    mfu_point_s,
    young_interval_s,
)
from harness.postmortem.markdown import duration

DUMP_S, RESTART_S, LOAD_S = 120.0, 480.0, 420.0
"""What a hang takes whoever watches: dumps, rendezvous, loading. Assumptions for 1024 cards."""


_WIDTHS = (8, 6, 8, 9, 6, 7)


@dataclass(frozen=True)
class Answers:
    """All durations in seconds. `alerted`, `silent`: a hang with alerts and runbook, and with neither."""

    fleet: Fleet
    run_s: float
    mfu: float
    mfu_point_s: float
    alerted: Split
    silent: Split
    mtbf_s: float
    save_s: float
    interval_s: float
    young_s: float
    lost_now: float
    lost_with_young: float

    @property
    def saved_a_hang_s(self) -> float:
        """What alerts and a runbook save each time."""
        return self.silent.known_s - self.alerted.known_s

    def lines(self) -> Iterator[str]:
        """For people."""
        fleet = self.fleet
        yield (
            f"{fleet.gpus} GPUs at {fleet.price:g} USD: {fleet.dollars(HOUR_S):,.0f} an hour,"
            f" {fleet.dollars(DAY_S):,.0f} a day, {fleet.dollars(self.run_s):,.0f} in {_days(self.run_s)}"
        )
        yield ""
        yield (
            f"one MFU point of {self.mfu:.0%}: {_days(self.mfu_point_s)} more of {_days(self.run_s)},"
            f" {fleet.dollars(self.mfu_point_s):,.0f} USD"
        )
        yield ""
        columns = (
            *zip(("detect", "dump", "decide", "restart", "load", "again"), _WIDTHS, strict=True),
            ("USD", 9),
        )
        yield f"{'one hang':<28}" + "".join(f"{name:>{width}}" for name, width in columns)
        for name, split in (("with alerts and runbook", self.alerted), ("with neither", self.silent)):
            cells = [f"{(s or 0) / 60:.3g}" for _, s in split.parts()]
            row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
            yield f"{name:<28}{row}{fleet.dollars(split.known_s):>9,.0f}  minutes"
        month = 30 * DAY_S / self.mtbf_s * fleet.dollars(self.saved_a_hang_s)
        yield (
            f"saved each time: {duration(self.saved_a_hang_s)},"
            f" {fleet.dollars(self.saved_a_hang_s):,.0f} USD;"
            f" with a failure every {duration(self.mtbf_s)}, {month:,.0f} USD in 30 days"
        )
        yield ""
        gained = (self.lost_now - self.lost_with_young) * DAY_S
        yield (
            f"checkpoints every {duration(self.interval_s)} lose {self.lost_now:.2%} to saving and"
            f" recomputing, every {duration(self.young_s)} (Young) {self.lost_with_young:.2%}:"
            f" {fleet.gpu_hours(gained):,.0f} GPU hours, {fleet.dollars(gained):,.0f} USD a day"
        )


def answers(
    gpus: int,
    price: float,
    run_s: float,
    mfu: float,
    save_s: float,
    mtbf_s: float,
    interval_s: float,
    alerted: tuple[float, float],
    silent: tuple[float, float],
) -> Answers:
    """`alerted`, `silent`: seconds to detect and to decide. On average half an interval is done again."""
    again_s = interval_s / 2
    best = young_interval_s(save_s, mtbf_s)
    return Answers(
        fleet=Fleet(gpus, price),
        run_s=run_s,
        mfu=mfu,
        mfu_point_s=mfu_point_s(mfu, run_s),
        alerted=Split(alerted[0], DUMP_S, alerted[1], RESTART_S, LOAD_S, again_s),
        silent=Split(silent[0], DUMP_S, silent[1], RESTART_S, LOAD_S, again_s),
        mtbf_s=mtbf_s,
        save_s=save_s,
        interval_s=interval_s,
        young_s=best,
        lost_now=lost_share(interval_s, save_s, mtbf_s),
        lost_with_young=lost_share(best, save_s, mtbf_s),
    )


def _days(seconds: float) -> str:
    return f"{seconds / DAY_S:.3g} days"
