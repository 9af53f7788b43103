"""One rank's records, with filters: what ``torchfrtrace -j --selected-ranks`` prints."""

from harness.diagnose.flight.describe import call_of, frames_of
from harness.diagnose.flight.room import FlightResult
from harness.diagnose.flight.table import State
from harness.model.errors import UsageError
from harness.model.ranks import format_ranks
from harness.model.records import CallRecord, RankRecords


def records_of(
    flight: FlightResult, rank: int, group: str | None = None, state: str | None = None
) -> RankRecords:
    """The calls of one rank, oldest first, of one group (name or description) and state if given.

    Raises:
        UsageError: no dump of that rank, or no such group in it.
    """
    evidence = flight.evidence
    if rank not in evidence.tables:
        there = format_ranks(evidence.tables) or "none"
        raise UsageError(f"--show-rank {rank}: there is no dump of that rank; there are: {there}")
    table = evidence.tables[rank]
    names = {
        n for g in set(table.group.tolist()) for n in (evidence.groups[g].name, evidence.groups[g].label)
    }
    if group is not None and group not in names:
        raise UsageError(
            f"--group {group}: rank {rank} has no such group; it has: {', '.join(sorted(names))}"
        )
    found: list[CallRecord] = []
    for at in range(len(table)):
        its_group = evidence.groups[int(table.group[at])]
        its_state = State(int(table.state[at])).name.lower()
        if group not in (None, its_group.name, its_group.label) or state not in (None, its_state):
            continue
        created = int(table.created_ns[at])
        found.append(
            CallRecord(
                record=int(table.record[at]),
                group=its_group.label,
                group_ranks=format_ranks(its_group.members),
                seq=int(table.seq[at]),
                p2p=bool(table.p2p[at]),
                call=call_of(evidence, rank, at),
                peer=flight.graph.pairs.peer(rank, at) if table.p2p[at] else None,
                state=its_state,
                created=created / 1e9 if created > 0 else None,
                frames=frames_of(evidence, [(rank, at)])[rank],
            )
        )
    return RankRecords(rank, table.file, tuple(found))
