"""What one explanation says, before it becomes a diagnosis."""

from dataclasses import dataclass

from harness.diagnose.traces.decide import Decision
from harness.diagnose.traces.growth import RankGrowth
from harness.diagnose.traces.sides import Side
from harness.model.diagnosis import Recommendation
from harness.model.kinds import Category, Confidence, Kind


@dataclass(frozen=True)
class Answer:
    """`says` completes "steps take so much longer: ..."; `category` where the kind alone does not fix it.

    `convicts`: late ranks are culprits; where their time may be spent waiting unseen, they are suspects.
    """

    kind: Kind
    confidence: Confidence
    says: str
    site: str | None = None
    convicts: bool = True
    category: Category | None = None
    chain: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()


@dataclass(frozen=True)
class Case:
    """All that an explanation may look at. `found` has an entry for each rank of the new side."""

    then: Side
    now: Side
    found: tuple[RankGrowth, ...]
    decision: Decision

    @property
    def few(self) -> tuple[RankGrowth, ...]:
        """The late ranks; where none is, all."""
        late = self.decision.late
        return tuple(g for g in self.found if not late or g.rank in late)

    @property
    def untraced(self) -> tuple[int, ...]:
        """Ranks of the job without a new trace, where the job's size is known."""
        everybody = range(self.now.world_size or 0)
        return tuple(rank for rank in everybody if rank not in self.now.breakdowns)

    @property
    def alone(self) -> bool:
        """Only one rank's trace is there, of a job that has more or may have more."""
        return len(self.found) == 1 and self.now.world_size != 1

    def grew(self, bucket: str) -> float:
        """By how many seconds a part grew on the ranks that matter."""
        if not self.decision.late:
            return self.decision.parts[bucket].by_s
        return max(g.parts[bucket].by_s for g in self.few)
