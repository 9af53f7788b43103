"""TORCH_DISTRIBUTED_DEBUG=DETAIL: torch compares collectives before it sends any, and says who differs."""

import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from harness.diagnose.logs.events import LogEvent
from harness.model.diagnosis import CallSignature, Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

_FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+), OpType=(\w+)"
    r"(?:, TensorShape=\[([^\]]*)\])?(?:, TensorDtypes=([\w, ]*?))?(?:, Tensor|\))"
)
MIN_RANKS = 3
"""Two against one; with fewer nobody can tell who is odd (DIAGNOSIS, logs, rule 8)."""


@dataclass(frozen=True)
class _Call:
    op: str
    shape: str
    dtypes: str


def detail_finding(logs: Sequence[LogEvent], world_size: int) -> Finding | None:
    """The odd rank by majority over one sequence number, or the two sides as suspects.

    Ranks in a message count inside its group, and its teller comes first: where that is not the teller's
    global rank, the message is of a smaller group, and names somebody only if all its members tell who they
    are; three agreeing peers convict then. Equal fingerprints are the wrapper's own false alarm and count for
    nothing.
    """
    reports = [event for event in logs if event.kind == "detail"]
    inside = any(not _speaks_globally(event) for event in reports)
    inner: dict[int, _Call] = {}
    seqs: Counter[int] = Counter()
    for event in reports:
        for rank, seq, op, shape, dtypes in _FINGERPRINT.findall(event.text):
            inner[int(rank)] = _Call(op.lower(), shape, dtypes)
            seqs[int(seq)] += 1
    members = _members(reports, inner.keys()) if inside else {rank: rank for rank in inner}
    if members is None:
        return None
    calls = {members[rank]: call for rank, call in inner.items()}
    votes = Counter(calls.values())
    if len(votes) < 2 or len(seqs) != 1 or max(calls) >= world_size:
        return None
    ((usual, count),) = votes.most_common(1)
    odd = tuple(sorted(rank for rank, call in calls.items() if call != usual))
    sure = len(calls) >= MIN_RANKS and 2 * count > len(calls) and (count >= MIN_RANKS or not inside)
    accused = odd if sure else tuple(sorted(calls))
    (seq,) = seqs
    found = calls[odd[0]]
    return Finding(
        source="log",
        kind=_kind(usual, found),
        confidence=(Confidence.CERTAIN if count >= MIN_RANKS and not inside else Confidence.LIKELY)
        if sure
        else Confidence.POSSIBLE,
        summary=(
            f"rank {format_ranks(odd)} ran {_said(found, usual)} where ranks "
            f"{format_ranks(set(calls) - set(odd))} ran {_said(usual, found)} (debug level DETAIL)"
        ),
        culprits=accused if sure else (),
        suspects=() if sure else accused,
        victims=tuple(rank for rank in range(world_size) if rank not in accused),
        where=Where(
            # The wrapper counts from 0, the Flight Recorder from 1.
            seq=seq + 1,
            op=usual.op,
            expected=_signature(usual, seq + 1),
            found={rank: _signature(calls[rank], seq + 1) for rank in odd},
        ),
        evidence=tuple(cite_detail(event) for event in reports[:3]),
    )


def _speaks_globally(event: LogEvent) -> bool:
    found = _FINGERPRINT.search(event.text)
    return found is None or int(found[1]) == event.rank


def _members(reports: Sequence[LogEvent], named: Set[int]) -> dict[int, int] | None:
    """Rank in the group -> global rank, as the tellers say of themselves.

    None unless each member is a teller and all are of one group: torch sorts the ranks of a group, so that
    both numbers rise together.
    """
    members: dict[int, int] = {}
    for event in reports:
        found = _FINGERPRINT.search(event.text)
        if found and members.setdefault(int(found[1]), event.rank) != event.rank:
            return None
    inner = sorted(members)
    ranks = [members[rank] for rank in inner]
    whole = inner == list(range(len(inner)))
    rising = all(one < next_ for one, next_ in pairwise(ranks))
    return members if whole and rising and named <= members.keys() else None


def cite_detail(event: LogEvent) -> Citation:
    """A report of the wrapper as evidence, in short."""
    said = "; ".join(
        f"rank {rank} {op} [{shape}] {dtypes}".rstrip()
        for rank, _, op, shape, dtypes in _FINGERPRINT.findall(event.text)
    )
    return Citation("log", f"DETAIL: collectives differ: {said}", event.file, event.line, rank=event.rank)


def _kind(usual: _Call, found: _Call) -> Kind:
    if usual.op != found.op:
        return Kind.COLLECTIVE_TYPE_MISMATCH
    return Kind.COLLECTIVE_SIZE_MISMATCH if usual.shape != found.shape else Kind.COLLECTIVE_DTYPE_MISMATCH


def _said(call: _Call, other: _Call) -> str:
    """A call in short; its type where that is all that tells it from another."""
    alike = (call.op, call.shape) == (other.op, other.shape)
    return f"{call.op} [{call.shape}] {call.dtypes}" if alike else f"{call.op} [{call.shape}]"


def _signature(call: _Call, seq: int) -> CallSignature:
    sizes = tuple(int(n) for n in re.findall(r"\d+", call.shape))
    return CallSignature(call.op, (sizes,), (), tuple(filter(None, [call.dtypes])), (), None, seq)
