"""One rank's recorded operations as columns, with what repeats interned over all ranks."""

import marshal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.diagnose.flight.load import NotADump
from harness.diagnose.frames import is_own_code

Column = npt.NDArray[Any]

_NO_PEER = -1


class State(IntEnum):
    """How far one operation got on one rank. UNKNOWN: gloo retired it, which is no proof."""

    DONE = 0
    STARTED = 1
    SCHEDULED = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Signature:
    """What peers must agree on. `src` and `dst` are group ranks of a send or receive, else -1."""

    op: str
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    src: int = _NO_PEER
    dst: int = _NO_PEER


@dataclass(frozen=True)
class Site:
    """The innermost frame outside torch and its decorators: who made the call."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} {self.file.rsplit('/', 1)[-1]}:{self.line}"


@dataclass
class Interner:
    """Values that repeat over entries and ranks, by small numbers. Stack and site 0 mean: not recorded."""

    signatures: list[Signature] = field(default_factory=list)
    groups: list[tuple[str, str]] = field(default_factory=list)
    stacks: list[tuple[Site, ...]] = field(default_factory=lambda: [()])
    sites: list[Site | None] = field(default_factory=lambda: [None])
    site_of_stack: list[int] = field(default_factory=lambda: [0])
    _signature_ids: dict[Signature, int] = field(default_factory=dict)
    _signature_cache: dict[bytes, int] = field(default_factory=dict)
    _group_ids: dict[tuple[str, str], int] = field(default_factory=dict)
    _stack_ids: dict[tuple[Site, ...], int] = field(default_factory=dict)
    _stack_cache: dict[bytes, int] = field(default_factory=dict)
    _site_ids: dict[Site, int] = field(default_factory=dict)

    def group(self, name: str, description: str) -> int:
        """The number of a (name, description) pair."""
        return _intern((name, description), self._group_ids, self.groups)

    def signature(self, signature: Signature) -> int:
        """The number of a signature."""
        return _intern(signature, self._signature_ids, self.signatures)

    def stack(self, stack: tuple[Site, ...]) -> int:
        """The number of a Python stack, innermost frame first."""
        if not stack:
            return 0
        known = self._stack_ids.get(stack)
        if known is None:
            known = self._stack_ids[stack] = len(self.stacks)
            self.stacks.append(stack)
            site = caller(stack)
            self.site_of_stack.append(0 if site is None else self._site(site))
        return known

    def signatures_of(self, raw: Iterable[tuple[object, ...]]) -> list[int]:
        """Numbers of many (name, input sizes, output sizes, input dtypes, output dtypes)."""
        cache, numbers = self._signature_cache, []
        for fields in raw:
            # Version 2 has no back references: equal values give equal bytes.
            key = marshal.dumps(fields, 2)  # type: ignore[arg-type]  # ValueError on what it cannot
            known = cache.get(key)
            if known is None:
                known = cache[key] = self.signature(_signature(fields))
            numbers.append(known)
        return numbers

    def stacks_of(self, raw: Iterable[object]) -> list[int]:
        """Numbers of many lists of frames. Within one dump equal frames are mostly the same objects."""
        by_list: dict[int, int] = {}
        by_frames: dict[tuple[int, ...], int] = {}
        numbers = []
        for frames in raw:
            known = by_list.get(id(frames))
            if known is None:
                if not isinstance(frames, (list, tuple)):
                    raise TypeError("frames")
                identity = tuple(map(id, frames))
                known = by_frames.get(identity)
                if known is None:
                    known = by_frames[identity] = self._stack_by_value(frames)
                by_list[id(frames)] = known
            numbers.append(known)
        return numbers

    def absorb(self, other: "Interner") -> "Remap":
        """Take over another interner's values; the answer turns its numbers into ours."""
        return Remap(
            np.array([self.group(*g) for g in other.groups] or [0], dtype=np.int16),
            np.array([self.signature(s) for s in other.signatures] or [0], dtype=np.int32),
            np.array([self.stack(s) for s in other.stacks], dtype=np.int32),
        )

    def _stack_by_value(self, frames: Sequence[object]) -> int:
        key = marshal.dumps(frames, 2)  # type: ignore[arg-type]
        known = self._stack_cache.get(key)
        if known is None:
            known = self._stack_cache[key] = self.stack(tuple(_frame(f) for f in frames))
        return known

    def _site(self, site: Site) -> int:
        known = self._site_ids.get(site)
        if known is None:
            known = self._site_ids[site] = len(self.sites)
            self.sites.append(site)
        return known


@dataclass(frozen=True)
class Remap:
    """One interner's numbers in terms of another's: arrays indexed by the old number."""

    groups: Column
    signatures: Column
    stacks: Column


def _intern(value: Any, numbers: dict[Any, int], values: list[Any]) -> int:
    known = numbers.get(value)
    if known is None:
        known = numbers[value] = len(values)
        values.append(value)
    return known


def caller(stack: Sequence[Site]) -> Site | None:
    """The innermost frame outside torch, contextlib, functools and typing_extensions."""
    return next((frame for frame in stack if is_own_code(frame.file)), None)


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
        members=_members(dump.get("pg_config")),
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
    return np.array([_int(value) for value in column], dtype=dtype)


def _frame(value: object) -> Site:
    if not isinstance(value, Mapping):
        raise TypeError("frame")
    return Site(str(value.get("name")), str(value.get("filename")), _int(value.get("line")))


def _signature(raw: tuple[object, ...]) -> Signature:
    name, in_sizes, out_sizes, in_dtypes, out_dtypes = raw
    op = str(name or "").partition(":")[2] or str(name or "")
    words = op.split()
    src = dst = _NO_PEER
    if len(words) == 2:
        for arrow in ("->", "<-"):
            left, found, right = words[1].partition(arrow)
            if found and left.isdigit() and right.isdigit():
                op = words[0]
                src, dst = (int(left), int(right)) if arrow == "->" else (int(right), int(left))
    return Signature(op, _sizes(in_sizes), _sizes(out_sizes), _words(in_dtypes), _words(out_dtypes), src, dst)


def _sizes(value: object) -> tuple[tuple[int, ...], ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise TypeError("sizes")
    return tuple(tuple(_int(n) for n in shape) for shape in value)


def _words(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise TypeError("dtypes")
    return tuple(str(word) for word in value)


def _int(value: object) -> int:
    if value is None:
        return -1
    if isinstance(value, (int, float, str)):
        number = int(value)
        if -(1 << 62) < number < (1 << 62):
            return number
    raise TypeError(f"{value!r:.40} is not a count")


def _status(value: object) -> dict[str, tuple[int, int]]:
    """pg_status: group name -> (last enqueued, last completed) collective."""
    if not isinstance(value, dict):
        return {}
    found: dict[str, tuple[int, int]] = {}
    for name, entry in value.items():
        if isinstance(entry, dict):
            try:
                found[str(name)] = (
                    _int(entry.get("last_enqueued_collective")),
                    _int(entry.get("last_completed_collective")),
                )
            except (TypeError, ValueError):
                continue
    return found


def _members(value: object) -> dict[tuple[str, str], tuple[int, ...]]:
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
