"""What time costs: GPU hours, money, an MFU point, a hang with and without alerts, a checkpoint interval."""

import math
from dataclasses import dataclass

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@dataclass(frozen=True)
class Fleet:
    """`gpus` cards at `price` US dollars an hour each."""

    gpus: int
    price: float

    def gpu_hours(self, seconds: float) -> float:
        """What all cards together spend in that time."""
        return self.gpus * seconds / HOUR_S

    def dollars(self, seconds: float) -> float:
        """What that costs."""
        return self.gpu_hours(seconds) * self.price


@dataclass(frozen=True)
class Split:
    """An incident's parts, seconds, None where it is not known.

    detect: last step to the first notice; dump: until the evidence was there; decide: until the restart
    began; restart: until all ranks had joined; load: until the first step began; recompute: until the job was
    where it had been.
    """

    detect: float | None = None
    dump: float | None = None
    decide: float | None = None
    restart: float | None = None
    load: float | None = None
    recompute: float | None = None

    @property
    def known_s(self) -> float:
        """The sum of what is known."""
        return sum(seconds for _, seconds in self.parts() if seconds is not None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Parts that are not known."""
        return tuple(name for name, seconds in self.parts() if seconds is None)

    def parts(self) -> tuple[tuple[str, float | None], ...]:
        """Name and seconds, in order."""
        return (
            ("detect", self.detect),
            ("dump", self.dump),
            ("decide", self.decide),
            ("restart", self.restart),
            ("load", self.load),
            ("recompute", self.recompute),
        )


def young_interval_s(save_s: float, mtbf_s: float) -> float:
    """The interval between checkpoints that loses least: sqrt(2 x save x time between failures).

    Source: J. W. Young, "A first order approximation to the optimum checkpoint interval", 1974. `save_s` is
    by how much a save delays training; where saves run beside it, less than they take.
    """
    return math.sqrt(2 * save_s * mtbf_s)


def lost_share(interval_s: float, save_s: float, mtbf_s: float) -> float:
    """What share of all time saving and recomputing take: save / interval + interval / (2 x mtbf).

    Both sides count: more saves cost time too. Restarting itself does not depend on the interval.
    """
    return save_s / interval_s + interval_s / (2 * mtbf_s)


def mfu_point_s(mfu: float, run_s: float) -> float:
    """How much longer a run takes for one percentage point of MFU less. `mfu` is a share, 0.42 for 42 %."""
    return run_s * 0.01 / mfu
