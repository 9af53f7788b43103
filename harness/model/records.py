"""One rank's recorded calls, for people and scripts that want to look closer."""

from dataclasses import dataclass

from harness.model.diagnosis import CallSignature

SCHEMA = "drill/records/1"


@dataclass(frozen=True)
class CallRecord:
    """One recorded call. `state` is done, started, scheduled or unknown; `created` is unix seconds."""

    record: int
    group: str
    group_ranks: str
    seq: int
    p2p: bool
    call: CallSignature
    peer: int | None
    state: str
    created: float | None
    frames: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankRecords:
    """`drill/records/1`: the calls of one rank, oldest first."""

    rank: int
    file: str
    records: tuple[CallRecord, ...]
    schema: str = SCHEMA
