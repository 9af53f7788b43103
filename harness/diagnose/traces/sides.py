"""All traces of one side, read on all cores, and cut into parts."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from harness.diagnose.flight.parallel import OnProgress
from harness.diagnose.traces.breakdown import Breakdown, parts
from harness.diagnose.traces.collectives import shortest, split
from harness.diagnose.traces.find import TraceFile, find_traces
from harness.diagnose.traces.header import NotATrace
from harness.diagnose.traces.prepare import Prepared, prepare
from harness.model.errors import PrerequisiteError

PARALLEL_FROM_BYTES = 16 << 20
"""Below this much, starting processes costs more than it saves."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: rank -> its steps in parts. `said`: what to know about its files."""

    breakdowns: Mapping[int, Breakdown]
    said: tuple[str, ...]
    broken: bool
    world_size: int | None

    @property
    def on_device(self) -> bool:
        """Whether kernels were recorded."""
        return any(b.on_device for b in self.breakdowns.values())


def read_side(paths: Sequence[Path], world_size: int | None, on_progress: OnProgress) -> Side:
    """Read all traces under `paths`; of two of one rank the later one counts.

    `world_size` counts where no trace says how many ranks there were.

    Raises:
        PrerequisiteError: none of them could be used.
    """
    said: list[str] = []
    loaded = _one_a_rank(_load(find_traces(paths), said, on_progress), said)
    if not loaded:
        why = f" ({'; '.join(said[:5])})" if said else ""
        raise PrerequisiteError(f"{paths[0]}: nothing readable here: expected profiler traces{why}")
    said += [f"{trace.file}: {words}" for trace in loaded.values() for words in trace.said]
    least = shortest(trace.collectives for trace in loaded.values())
    breakdowns = {}
    for rank, trace in sorted(loaded.items()):
        steps = trace.steps
        when = split(trace.collectives, trace.keys, least)
        breakdowns[rank] = Breakdown(
            rank=rank,
            file=trace.file,
            on_device=trace.computing.on_device,
            steps=tuple(steps.label.tolist()),
            step_ns=steps.end - steps.begin,
            parts=parts(trace.computing, when, steps.begin, steps.end),
            work=trace.work,
        )
    recorded = max((t.world_size for t in loaded.values() if t.world_size), default=world_size)
    return Side(breakdowns, tuple(said), any(trace.broken for trace in loaded.values()), recorded)


def _load(files: Sequence[TraceFile], said: list[str], on_progress: OnProgress) -> list[Prepared]:
    count = min(len(os.sched_getaffinity(0)), len(files))
    if count > 1 and sum(file.size for file in files) >= PARALLEL_FROM_BYTES:
        with ProcessPoolExecutor(count, mp_context=get_context("fork")) as pool:
            results = []
            for done, result in enumerate(pool.map(_prepare, files), 1):
                on_progress(done, len(files))
                results.append(result)
    else:
        results = []
        for done, file in enumerate(files, 1):
            results.append(_prepare(file))
            on_progress(done, len(files))
    said += [result for result in results if isinstance(result, str)]
    return [result for result in results if isinstance(result, Prepared)]


def _prepare(file: TraceFile) -> Prepared | str:
    try:
        return prepare(file)
    except NotATrace as error:
        return f"{file.name}: {error}"
    except OSError as error:
        return f"{file.name}: {error.strerror}"


def _one_a_rank(traces: Sequence[Prepared], said: list[str]) -> dict[int, Prepared]:
    chosen: dict[int, Prepared] = {}
    for trace in sorted(traces, key=lambda trace: trace.began_ns):
        rank = trace.rank
        if rank is None:
            if len(traces) > 1:
                said.append(
                    f"{trace.file}: neither its content nor its name says which rank wrote it, left out"
                )
                continue
            rank = 0
        if rank in chosen:
            said.append(f"{chosen[rank].file}: older than {trace.file} for rank {rank}, left out")
        chosen[rank] = trace
    return chosen
