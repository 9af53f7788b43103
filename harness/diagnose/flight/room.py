"""The room's door: dump files in, findings and a table out."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.diagnose.flight.breaktable import break_table
from harness.diagnose.flight.evidence import FlightEvidence, Membership, normalise
from harness.diagnose.flight.findings import find_all
from harness.diagnose.flight.parallel import load_tables
from harness.diagnose.flight.sources import DumpSource
from harness.diagnose.flight.table import RankTable
from harness.diagnose.flight.waits import WaitGraph, build_graph
from harness.model.breaktable import BreakTable
from harness.model.diagnosis import RankState, Where
from harness.model.finding import Finding
from harness.model.ranks import format_ranks


@dataclass(frozen=True)
class FlightResult:
    """What the dumps of one attempt say."""

    evidence: FlightEvidence
    graph: WaitGraph
    findings: tuple[Finding, ...]

    def table(self, finding: Finding) -> BreakTable | None:
        """The calls around a finding's break."""
        return break_table(self.evidence, self.graph, finding)

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

    def states(self) -> tuple[RankState, ...]:
        """Enqueued and completed of every rank in every group, like ranks together."""
        alike: dict[tuple[str, int, int], list[int]] = {}
        for rank, table in self.evidence.tables.items():
            for group, (enqueued, completed) in self._progress(rank, table).items():
                alike.setdefault((group, enqueued, completed), []).append(rank)
        return tuple(
            RankState(format_ranks(ranks), group, enqueued, completed)
            for (group, enqueued, completed), ranks in sorted(
                alike.items(), key=lambda item: (len(item[1]), item[0])
            )
        )

    def _progress(self, rank: int, table: RankTable) -> dict[str, tuple[int, int]]:
        return {
            group.label: table.status[group.name]
            for number, group in enumerate(self.evidence.groups)
            if group.name in table.status and (table.group == number).any()
        }


def analyse_dumps(
    sources: Sequence[DumpSource],
    memberships: Sequence[Membership] = (),
    world_size: int | None = None,
    hang: bool | None = None,
    complaints: Sequence[str] = (),
) -> FlightResult:
    """Analyse one dump a rank. Files that are no dumps end up in `evidence.complaints`, a line each.

    `hang` is what is known from elsewhere of whether the job stood still (see `find_all`).
    """
    loaded = load_tables(sources)
    evidence = normalise(
        loaded.tables, loaded.interner, memberships, world_size, (*complaints, *loaded.complaints)
    )
    graph = build_graph(evidence)
    return FlightResult(evidence, graph, find_all(evidence, graph, hang))
