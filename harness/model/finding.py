"""What one room of `diagnose` found, before the rooms are weighed against one another."""

from dataclasses import dataclass, field

from harness.model.diagnosis import Citation, RuledOut, Where
from harness.model.kinds import Confidence, Kind


@dataclass(frozen=True)
class Finding:
    """One explanation with its evidence. `source` names the room that found it."""

    source: str
    kind: Kind
    confidence: Confidence
    summary: str
    culprits: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    where: Where = field(default_factory=Where)
    evidence: tuple[Citation, ...] = ()
    chain: tuple[str, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
