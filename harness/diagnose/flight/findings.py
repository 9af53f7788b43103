"""Knots of the wait-for graph to findings, convictions first."""

from collections.abc import Sequence

from harness.diagnose.flight.arrivals import find_straggler
from harness.diagnose.flight.diverged import departures_inside, diverged
from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.stuck import idle_ranks, joined_and_stuck
from harness.diagnose.flight.waits import WaitGraph
from harness.model.finding import Finding
from harness.model.kinds import Kind


def find_all(evidence: FlightEvidence, graph: WaitGraph, hang: bool | None = None) -> tuple[Finding, ...]:
    """All findings, convictions first.

    `hang` is what is known from elsewhere of whether the job stood still; None leaves it to the clocks
    in the dumps.
    """
    found: list[Finding] = []
    idle = [knot for knot in graph.knots if knot.idle]
    for knot in graph.knots:
        if knot.idle:
            continue
        if any(graph.waits_for.get(rank) for rank in knot.ranks):
            found.extend(diverged(evidence, graph, knot))
        else:
            found.extend(joined_and_stuck(evidence, graph, knot, hang))
    if idle:
        found.append(idle_ranks(evidence, graph, idle, hang))
    if not graph.heads:
        found.extend(departures_inside(evidence, graph, tuple(evidence.tables)))
    if all(finding.kind is Kind.HEALTHY for finding in found):
        straggler = find_straggler(evidence)
        found.extend([straggler] if straggler else [])
    return tuple(
        sorted(_different(found), key=lambda f: (not f.culprits, not f.suspects, f.kind is Kind.INCONCLUSIVE))
    )


def _different(found: Sequence[Finding]) -> list[Finding]:
    """One finding where several knots say the same of the same call."""
    seen: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        where = finding.where
        key = (finding.kind, finding.culprits, finding.suspects, where.group, where.group_ranks, where.seq)
        seen.setdefault(key, finding)
    return list(seen.values())
