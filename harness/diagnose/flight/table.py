"""One rank's recorded operations as columns, with what repeats interned over all ranks."""

import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from harness.diagnose.flight.load import NotADump
from harness.diagnose.frames import is_own_code

Ints = npt.NDArray[np.int64]

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
    _site_ids: dict[Site, int] = field(default_factory=dict)

    def signature(self, entry: Mapping[str, object]) -> int:
        """The number of an entry's signature."""
        raw = (
            entry.get("profiling_name"),
            entry.get("input_sizes"),
            entry.get("output_sizes"),
            entry.get("input_dtypes"),
            entry.get("output_dtypes"),
        )
        # Version 2 has no back references: equal values give equal bytes.
        key = marshal.dumps(raw, 2)  # type: ignore[arg-type]  # raises ValueError on what it cannot
        known = self._signature_cache.get(key)
        if known is None:
            known = self._intern_signature(_signature(raw))
            self._signature_cache[key] = known
        return known

    def group(self, name: str, description: str) -> int:
        """The number of a (name, description) pair."""
        key = (name, description)
        if key not in self._group_ids:
            self._group_ids[key] = len(self.groups)
            self.groups.append(key)
        return self._group_ids[key]

    def stack(self, frames: Sequence[Mapping[str, object]]) -> int:
        """The number of a Python stack, innermost frame first."""
        stack = tuple(Site(str(f.get("name")), str(f.get("filename")), _int(f.get("line"))) for f in frames)
        if not stack:
            return 0
        known = self._stack_ids.get(stack)
        if known is None:
            known = self._stack_ids[stack] = len(self.stacks)
            self.stacks.append(stack)
            self.site_of_stack.append(self._site(caller(stack)))
        return known

    def _intern_signature(self, signature: Signature) -> int:
        if signature not in self._signature_ids:
            self._signature_ids[signature] = len(self.signatures)
            self.signatures.append(signature)
        return self._signature_ids[signature]

    def _site(self, site: Site | None) -> int:
        if site is None:
            return 0
        if site not in self._site_ids:
            self._site_ids[site] = len(self.sites)
            self.sites.append(site)
        return self._site_ids[site]


def caller(stack: Sequence[Site]) -> Site | None:
    """The innermost frame outside torch, contextlib, functools and typing_extensions."""
    return next((frame for frame in stack if is_own_code(frame.file)), None)


@dataclass
class RankTable:
    """One rank's ring, oldest first. All columns have one length; `group` indexes `Interner.groups`."""

    rank: int
    file: str
    version: str
    backend: str
    group: Ints
    seq: Ints
    p2p: npt.NDArray[np.bool_]
    signature: Ints
    stack: Ints
    site: Ints
    state: Ints
    record: Ints
    created_ns: Ints
    retired: npt.NDArray[np.bool_]
    status: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    members: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seq)


def build_table(rank: int, file: str, dump: Mapping[str, object], interner: Interner) -> RankTable:
    """Turn a decoded dump into columns.

    Raises:
        NotADump: an entry's field has a type that no version of the recorder writes.
    """
    entries = dump["entries"]
    assert isinstance(entries, list)
    try:
        ordered = sorted(entries, key=lambda e: _int(e.get("record_id")))
        rows = [_row(entry, interner) for entry in ordered]
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise NotADump(f"a record has a field of the wrong type ({error})") from None
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 9).T
    group, seq, p2p, signature, stack, state, record, created, retired = columns
    backend = str(ordered[0].get("profiling_name", "")).partition(":")[0] if ordered else ""
    return RankTable(
        rank=rank,
        file=file,
        version=str(dump.get("version", "")),
        backend=backend,
        group=group,
        seq=seq,
        p2p=p2p.astype(np.bool_),
        signature=signature,
        stack=stack,
        site=np.array(interner.site_of_stack, dtype=np.int64)[stack],
        state=state,
        record=record,
        created_ns=created,
        retired=retired.astype(np.bool_),
        status=_status(dump.get("pg_status")),
        members=_members(dump.get("pg_config")),
    )


_STATES = {"completed": State.DONE, "started": State.STARTED, "scheduled": State.SCHEDULED}


def _row(entry: Mapping[str, object], interner: Interner) -> tuple[int, ...]:
    p2p = bool(entry.get("is_p2p", False))
    seq = entry.get("p2p_seq_id") if p2p else entry.get("collective_seq_id", entry.get("seq_id"))
    frames = entry.get("frames") or ()
    process_group = entry.get("process_group") or ("0", "default_pg")
    if not isinstance(process_group, (tuple, list)) or not isinstance(frames, (tuple, list)):
        raise TypeError("process_group or frames")
    return (
        interner.group(str(process_group[0]), str(process_group[-1])),
        _int(seq),
        p2p,
        interner.signature(entry),
        interner.stack(frames),
        _STATES.get(str(entry.get("state")), State.SCHEDULED),
        _int(entry.get("record_id")),
        _int(entry.get("time_created_ns")),
        bool(entry.get("retired", False)),
    )


def _signature(raw: tuple[object, ...]) -> Signature:
    name, in_sizes, out_sizes, in_dtypes, out_dtypes = raw
    op = str(name or "").partition(":")[2] or str(name or "")
    words = op.split()
    src = dst = _NO_PEER
    if len(words) == 2 and "->" in words[1]:
        left, _, right = words[1].partition("->")
        if left.isdigit() and right.isdigit():
            op, src, dst = words[0], int(left), int(right)
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
        ranks = tuple(int(r) for r in digits.split(",") if r.isdigit())
        if name and ranks:
            found[str(name), str(entry.get("desc", ""))] = ranks
    return found
