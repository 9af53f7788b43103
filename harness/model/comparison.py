"""`drill diagnose NOW --baseline THEN`: where a step's time went on both sides, and what that says."""

from dataclasses import dataclass
from typing import Literal

from harness.model.diagnosis import Diagnosis

SAVE_ROW = "a save"
"""The row of one checkpoint: seconds a save, which are no part of a typical step."""


@dataclass(frozen=True)
class Bucket:
    """One part of a step, then and now. Seconds a step unless the comparison's unit says otherwise.

    None where that side did not measure it.
    """

    name: str
    then_s: float | None
    now_s: float | None

    @property
    def grew_s(self) -> float | None:
        """How much longer it takes now; negative where it shrank, None where one side is missing."""
        if self.then_s is None or self.now_s is None:
            return None
        return self.now_s - self.then_s


@dataclass(frozen=True)
class RankBuckets:
    """The same parts for one rank."""

    rank: int
    rows: tuple[Bucket, ...]


@dataclass(frozen=True)
class Comparison:
    """Two sides, part by part.

    `what` was compared: profiler traces or runs. `unit` is that of the figures. `then` and `now` say what
    each side is. `rows` are the medians over ranks, `ranks` each rank's own figures, where they are known.
    """

    what: Literal["traces", "runs"]
    unit: str
    then: str
    now: str
    rows: tuple[Bucket, ...]
    ranks: tuple[RankBuckets, ...] = ()


@dataclass(frozen=True)
class ComparedResult:
    """What the difference says, and the difference."""

    diagnosis: Diagnosis
    comparison: Comparison
