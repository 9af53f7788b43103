"""The room's door: dump files in, findings and a table out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.flight.evidence import FlightEvidence, Membership, normalise
from harness.diagnose.flight.intern import Interner
from harness.diagnose.flight.sources import DumpSource
from harness.diagnose.flight.waits import WaitGraph, build_graph
from harness.diagnose.texts.pool import OnProgress
from harness.model.breaktable import BreakTable
from harness.model.diagnosis import Where
from harness.model.finding import Finding


@dataclass(frozen=True)
class FlightResult:
    """What the dumps of one attempt say."""

    evidence: FlightEvidence
    graph: WaitGraph
    findings: tuple[Finding, ...]

    def table(self, finding: Finding) -> BreakTable | None:
        """The calls around a finding's break."""
        if not self.evidence.groups:
            return None
        from harness.diagnose.flight.breaktable import break_table

        return break_table(self.evidence, finding)

    def issued_at(self, rank: int, where: Where) -> float | None:
        """When a rank issued the call at `where`, unix seconds; None if it did not, or is not known."""
        for number, group in enumerate(self.evidence.groups):
            if (group.label, group.members) != (where.group, where.group_ranks):
                continue
            if rank not in self.evidence.tables or where.seq is None:
                return None
            at = self.evidence.find(rank, number, where.seq)
            if at is not None:
                return float(self.evidence.tables[rank].created_ns[at]) / 1e9
        return None

    def progress(self) -> dict[int, tuple[tuple[str, int, int], ...]]:
        """For each rank (group, last enqueued, last completed), as its own dump states it."""
        found: dict[int, tuple[tuple[str, int, int], ...]] = {}
        for rank, table in self.evidence.tables.items():
            used = np.unique(table.group).tolist()
            groups = [self.evidence.groups[number] for number in used]
            found[rank] = tuple(
                (group.label, *table.status[group.name]) for group in groups if group.name in table.status
            )
        return {rank: rows for rank, rows in found.items() if rows}


def analyse_dumps(
    sources: Sequence[DumpSource],
    memberships: Sequence[Membership] = (),
    world_size: int | None = None,
    hang: bool | None = None,
    complaints: Sequence[str] = (),
    on_progress: OnProgress = lambda done, total: None,
    workers: int | None = None,
) -> FlightResult:
    """Analyse one dump a rank. Files that are no dumps end up in `evidence.complaints`, a line each.

    `hang` is what is known from elsewhere of whether the job stood still (see `find_all`); the answer
    does not depend on the number of `workers`.
    """
    if not sources:
        evidence = normalise([], Interner(), memberships, world_size, tuple(complaints))
        return FlightResult(evidence, build_graph(evidence), ())
    # Loaded where there are dumps: logs often come alone.
    from harness.diagnose.flight.findings import find_all
    from harness.diagnose.flight.parallel import load_tables

    loaded = load_tables(sources, workers, on_progress)
    evidence = normalise(
        loaded.tables, loaded.interner, memberships, world_size, (*complaints, *loaded.complaints)
    )
    graph = build_graph(evidence)
    return FlightResult(evidence, graph, find_all(evidence, graph, hang))
