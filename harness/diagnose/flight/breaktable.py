"""The calls around a break, for people."""

from harness.diagnose.flight.describe import short_call
from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.table import State
from harness.model.breaktable import BreakTable, Cell, Row
from harness.model.finding import Finding
from harness.model.ranks import format_ranks

ROWS_BEFORE = 2
MAX_ROWS = 8
MAX_COLUMNS = 3


def break_table(evidence: FlightEvidence, finding: Finding) -> BreakTable | None:
    """Rows around `finding.where.seq`: the agreeing ranks, each set that deviates, who is not there yet."""
    where = finding.where
    if where.seq is None or where.group is None:
        return None
    group = next(
        (
            i
            for i, g in enumerate(evidence.groups)
            if g.label == where.group and g.members == where.group_ranks
        ),
        None,
    )
    if group is None:
        return None
    last = where.stuck_seq if where.stuck_seq is not None else where.seq
    seqs = range(max(1, where.seq - ROWS_BEFORE), max(where.seq, last) + 1)
    seqs = seqs[-MAX_ROWS:] if len(seqs) > MAX_ROWS else seqs
    odd = finding.culprits or finding.suspects
    members = [m for m in where.group_ranks if m in evidence.tables]
    columns: dict[tuple[Cell, ...], list[int]] = {}
    absent = {m for m in members if evidence.find(m, group, where.seq) is None}
    for rank in sorted(members, key=lambda r: (r in absent and r not in odd, r in odd, r)):
        cells = tuple(_cell(evidence, rank, group, seq) for seq in seqs)
        key = cells if rank in odd else (Cell("", "absent" if rank in absent else ""),)
        columns.setdefault(key, []).append(rank)
    shown = list(columns.values())[:MAX_COLUMNS]
    rows = tuple(
        Row(
            seq,
            tuple(_cell(evidence, ranks[0], group, seq) for ranks in shown),
            marked=seq == where.seq,
        )
        for seq in seqs
    )
    return BreakTable(where.group, tuple(format_ranks(ranks) for ranks in shown), rows)


def _cell(evidence: FlightEvidence, rank: int, group: int, seq: int) -> Cell:
    at = evidence.find(rank, group, seq)
    if at is None:
        oldest = evidence.oldest(rank, group)
        return Cell("", "overwritten" if oldest is not None and seq < oldest else "not issued")
    site = evidence.site(rank, at)
    call = short_call(evidence.signature(rank, at))
    state = State(int(evidence.tables[rank].state[at]))
    word = "done" if state is State.DONE else "stuck"
    return Cell(f"{call} {site.function}" if site else call, word)
