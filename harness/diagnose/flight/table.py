"""One rank's recorded operations as columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from typing import Any

import numpy as np

from harness.diagnose.flight.intern import Column, Interner, Remap, integer
from harness.diagnose.flight.load import NotADump


class State(IntEnum):
    """How far one operation got on one rank. UNKNOWN: gloo retired it, which is no proof."""

    DONE = 0
    STARTED = 1
    SCHEDULED = 2
    UNKNOWN = 3


@dataclass
class RankTable:
    """One rank's ring, oldest first. All columns have one length.

    `group` (int16) indexes the interner's groups until `normalise` resolves it to the evidence's;
    `seq` is the collective's or, where `p2p`, the send's or receive's sequence number; `written_s` is
    when the dump was written (unix seconds, None if unknown). `gaps` says what the table lacks, if it
    does: such a table neither convicts its rank nor speaks for others' order.
    """

    rank: int
    file: str
    version: str
    backend: str
    group: Column
    seq: Column
    p2p: Column
    signature: Column
    stack: Column
    state: Column
    record: Column
    created_ns: Column
    completed_ns: Column
    retired: Column
    status: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    members: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    written_s: float | None = None
    gaps: str | None = None

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def wrapped(self) -> bool:
        """Whether the ring lost its oldest records."""
        return len(self) > 0 and int(self.record[0]) > 0

    def remap(self, to: Remap) -> None:
        """Turn another interner's numbers into ours."""
        self.group = to.groups[self.group]
        self.signature = to.signatures[self.signature]
        self.stack = to.stacks[self.stack]


_FIELDS = (
    "record_id",
    "process_group",
    "profiling_name",
    "input_sizes",
    "output_sizes",
    "input_dtypes",
    "output_dtypes",
    "state",
    "frames",
    "time_created_ns",
    "retired",
    "is_p2p",
    "collective_seq_id",
    "p2p_seq_id",
    "time_discovered_completed_ns",
)
_DEFAULTS: dict[str, object] = {"process_group": ("0", "default_pg"), "frames": ()}
_STATES = {"completed": State.DONE, "started": State.STARTED, "scheduled": State.SCHEDULED}


def build_table(
    rank: int,
    file: str,
    dump: Mapping[str, object],
    interner: Interner,
    written_s: float | None = None,
) -> RankTable:
    """Turn a decoded dump into columns. Absent keys are tolerated: dump versions differ by keys.

    Raises:
        NotADump: an entry's field has a type that no version of the recorder writes.
    """
    entries = dump["entries"]
    assert isinstance(entries, list)
    try:
        return _build(rank, file, dump, entries, interner, written_s)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError, RecursionError) as error:
        raise NotADump(f"a record has a field of the wrong type ({error})"[:200]) from None


def _build(
    rank: int,
    file: str,
    dump: Mapping[str, object],
    entries: list[dict[str, object]],
    interner: Interner,
    written_s: float | None,
) -> RankTable:
    columns = dict(zip(_FIELDS, _transpose(entries), strict=True))
    seq = columns["collective_seq_id"]
    if not any(seq) and entries and "seq_id" in entries[0]:
        seq = [entry.get("seq_id") for entry in entries]
    p2p = np.array([bool(flag) for flag in columns["is_p2p"]], dtype=np.bool_)
    signatures = interner.signatures_of(zip(*(columns[name] for name in _FIELDS[2:7]), strict=True))
    names = columns["profiling_name"]
    table = RankTable(
        rank=rank,
        file=file,
        version=str(dump.get("version", "")),
        backend=str(names[0]).partition(":")[0] if entries else "",
        group=_groups(columns["process_group"], interner),
        seq=np.where(p2p, _ints(columns["p2p_seq_id"], np.int32), _ints(seq, np.int32)),
        p2p=p2p,
        signature=np.array(signatures, dtype=np.int32),
        stack=np.array(interner.stacks_of(f or () for f in columns["frames"]), dtype=np.int32),
        state=np.array([_STATES.get(s, State.SCHEDULED) for s in columns["state"]], dtype=np.int8),
        record=_ints(columns["record_id"], np.int64),
        created_ns=_ints(columns["time_created_ns"], np.int64),
        completed_ns=_ints(columns["time_discovered_completed_ns"], np.int64),
        retired=np.array([bool(flag) for flag in columns["retired"]], dtype=np.bool_),
        status=_status(dump.get("pg_status")),
        members=stated_members(dump.get("pg_config")),
        written_s=written_s,
    )
    if len(table) > 1 and (np.diff(table.record) < 0).any():
        _sort(table)
    table.gaps = _gaps(table, columns)
    return table


def _gaps(table: RankTable, columns: Mapping[str, Sequence[Any]]) -> str | None:
    """What a damaged or filtered dump lacks, or None."""
    steps = np.diff(table.record)
    if len(steps) and (steps != 1).any():
        after = int(table.record[int(np.argmax(steps != 1))])
        return f"records are missing after number {after}"
    for name in ("profiling_name", "input_sizes", "input_dtypes"):
        unknown = [value is None for value in columns[name]]
        if any(unknown) and not all(unknown):
            return f"{name} is not recorded in every record"
    return None


def _transpose(entries: list[dict[str, object]]) -> Sequence[Sequence[Any]]:
    """Columns in the order of `_FIELDS`; the fast way where every entry has every key."""
    if not entries:
        return [()] * len(_FIELDS)
    get: Callable[[dict[str, object]], tuple[object, ...]] = itemgetter(*_FIELDS)
    try:
        rows = list(map(get, entries))
    except KeyError:
        rows = [tuple(entry.get(k, _DEFAULTS.get(k)) for k in _FIELDS) for entry in entries]
    return list(zip(*rows, strict=True))


COLUMNS = (
    *("group", "seq", "p2p", "signature", "stack", "state", "record"),
    *("created_ns", "completed_ns", "retired"),
)
"""All columns of a `RankTable`."""


def _sort(table: RankTable) -> None:
    order = np.argsort(table.record, kind="stable")
    for name in COLUMNS:
        setattr(table, name, getattr(table, name)[order])


def _groups(column: Sequence[object], interner: Interner) -> Column:
    numbers: list[int] = []
    cache: dict[object, int] = {}
    for value in column:
        key = tuple(value) if isinstance(value, list) else value
        known = cache.get(key)
        if known is None:
            if not isinstance(key, tuple) or not key:
                raise TypeError("process_group")
            known = cache[key] = interner.group(str(key[0]), str(key[-1]))
        numbers.append(known)
    return np.array(numbers, dtype=np.int16)


def _ints(column: Sequence[object], dtype: Any) -> Column:
    try:
        if not any(isinstance(value, (str, float, bool)) for value in column[:1]):
            return np.array(column, dtype=dtype)
    except (TypeError, ValueError):
        pass
    return np.array([integer(value) for value in column], dtype=dtype)


def _status(value: object) -> dict[str, tuple[int, int]]:
    """pg_status: group name -> (last enqueued, last completed) collective."""
    if not isinstance(value, dict):
        return {}
    found: dict[str, tuple[int, int]] = {}
    for name, entry in value.items():
        if isinstance(entry, dict):
            try:
                found[str(name)] = (
                    integer(entry.get("last_enqueued_collective")),
                    integer(entry.get("last_completed_collective")),
                )
            except (TypeError, ValueError):
                continue
    return found


def stated_members(value: object) -> dict[tuple[str, str], tuple[int, ...]]:
    """pg_config: (name, description) -> global ranks. gloo's broken entries have no ranks or no name."""
    if not isinstance(value, dict):
        return {}
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for name, entry in value.items():
        if not isinstance(entry, dict):
            continue
        digits = str(entry.get("ranks", "")).strip("[] ").replace(" ", "")
        ranks = tuple(int(r) for r in digits.split(",") if r.isdigit() and int(r) < MAX_RANK)
        if name and ranks:
            found[str(name), str(entry.get("desc", ""))] = ranks
    return found


MAX_RANK = 1 << 20
"""No job has a million ranks: larger numbers are damage."""
