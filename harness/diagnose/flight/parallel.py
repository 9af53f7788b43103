"""Loading many dumps on all cores. The answer does not depend on how many."""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from multiprocessing import get_context

from harness.diagnose.flight.intern import Interner
from harness.diagnose.flight.load import NotADump, load_dump
from harness.diagnose.flight.sources import DumpSource
from harness.diagnose.flight.table import MAX_RANK, RankTable, build_table, stated_members
from harness.diagnose.garbage import no_garbage_collection

PARALLEL_FROM_BYTES = 8 << 20
"""Below this much, starting processes costs more than it saves."""


@dataclass
class Loaded:
    """Tables of one interner; `complaints` are a line for each file that is no dump."""

    interner: Interner = field(default_factory=Interner)
    tables: list[RankTable] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


OnProgress = Callable[[int, int], None]
"""Called with how many of how many dumps are loaded."""


def load_tables(
    sources: Sequence[DumpSource],
    workers: int | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> Loaded:
    """Load all dumps, one a rank; of two files for one rank the newer counts, and that is said.

    Ranks come from the file's name; a file without a number in its name gets the rank that its content
    proves, if it proves one.
    """
    count = workers or _workers(sources)
    load = partial(_load_in_processes, count=count) if count > 1 else _load
    loaded = load(sources, on_progress=on_progress)
    loaded.tables = _one_a_rank(loaded.tables, loaded.complaints)
    return loaded


def _workers(sources: Sequence[DumpSource]) -> int:
    size = sum(source.size for source in sources)
    return 1 if size < PARALLEL_FROM_BYTES else min(len(os.sched_getaffinity(0)), len(sources))


def _load_in_processes(sources: Sequence[DumpSource], count: int, on_progress: OnProgress) -> Loaded:
    # Sources hold functions, which do not pickle: forked children find them here by number.
    _shared.append(sources)
    total = Loaded()
    try:
        parts = max(count * 4, len(sources) // 16)
        bounds = [len(sources) * i // parts for i in range(parts + 1)]
        chunks = [(a, b) for a, b in pairwise(bounds) if a < b]
        with ProcessPoolExecutor(count, mp_context=get_context("fork")) as pool:
            for part, (_, done) in zip(pool.map(_load_chunk, chunks), chunks, strict=True):
                remap = total.interner.absorb(part.interner)
                for table in part.tables:
                    table.remap(remap)
                total.tables.extend(part.tables)
                total.complaints.extend(part.complaints)
                on_progress(done, len(sources))
    finally:
        _shared.pop()
    return total


_shared: list[Sequence[DumpSource]] = []


def _load_chunk(bounds: tuple[int, int]) -> Loaded:
    return _load(_shared[-1][slice(*bounds)], lambda done, total: None)


def _load(sources: Sequence[DumpSource], on_progress: OnProgress) -> Loaded:
    loaded = Loaded()
    with no_garbage_collection():
        for number, source in enumerate(sources):
            on_progress(number, len(sources))
            try:
                dump = load_dump(source.read())
                rank = source.rank if source.rank is not None else _rank_from_content(dump)
                if rank is None or not 0 <= rank < MAX_RANK:
                    raise NotADump("neither its name nor its content says which rank wrote it")
                table = build_table(rank, source.name, dump, loaded.interner, source.written_s)
                loaded.tables.append(table)
            except NotADump as error:
                loaded.complaints.append(f"{source.name}: {error}")
            except OSError as error:
                loaded.complaints.append(f"{source.name}: {error.strerror}")
    return loaded


def _rank_from_content(dump: dict[str, object]) -> int | None:
    """The rank that a dump states, or the only one that is in all the groups of its pg_config.

    Newer formats and other tools write a rank. A process lists the groups that it belongs to: a tensor and a
    data parallel group have one rank in common. Its sends and receives say which of a group's members it is.
    """
    rank = dump.get("rank", dump.get("global_rank"))
    if isinstance(rank, int) and not isinstance(rank, bool):
        return rank
    groups = stated_members(dump.get("pg_config"))
    common = set.intersection(*map(set, groups.values())) if groups else set()
    if len(common) == 1:
        return common.pop()
    entries = dump.get("entries")
    for entry in entries if isinstance(entries, list) else ():
        found = _PEERS.search(str(entry.get("profiling_name"))) if isinstance(entry, dict) else None
        group = entry.get("process_group") if found else None
        members = groups.get((str(group[0]), str(group[-1])), ()) if isinstance(group, (list, tuple)) else ()
        if found and int(found[1]) < len(members):
            return members[int(found[1])]
    return None


_PEERS = re.compile(r":(?:send|recv) (\d+)(?:->|<-)\d+$")
"""Ranks inside the group, one's own first."""


def _one_a_rank(tables: Sequence[RankTable], complaints: list[str]) -> list[RankTable]:
    newest: dict[int, RankTable] = {}
    for table in tables:
        known = newest.get(table.rank)
        if known is None:
            newest[table.rank] = table
            continue
        kept, left = sorted((known, table), key=_age, reverse=True)
        newest[table.rank] = kept
        complaints.append(f"{left.file}: older than {kept.file} for rank {table.rank}, left out")
    return [newest[rank] for rank in sorted(newest)]


def _age(table: RankTable) -> tuple[int, float]:
    return int(table.created_ns.max(initial=0)), table.written_s or 0.0
