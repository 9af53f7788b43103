"""Who the ranks of a job are: the rank map of a bundle, from outside, and what is missing from it."""

import platform
from collections.abc import Mapping

from harness.bundle.environment import relevant_environment
from harness.bundle.layout import Layout
from harness.bundle.reader import BundleReader
from harness.diagnose.stacks.samples import RankStacks
from harness.diagnose.stacks.sites import position
from harness.model.bundle import RankMap, RankRecord, Uncollected
from harness.model.ranks import format_ranks
from harness.observe.backends import Backends
from harness.observe.gpus import GpuState
from harness.observe.jobs import Job, RankProcess

_OF_ONE_RANK = ("TORCHELASTIC_ERROR_FILE", "CUDA_VISIBLE_DEVICES")


def rank_map(
    job: Job,
    backends: Mapping[int, Backends],
    stacks: Mapping[int, RankStacks],
    gpus: GpuState,
    registered_in: Layout | None,
) -> RankMap:
    """Every rank of this machine. One that registered itself with our own worker knows best."""
    said = BundleReader(registered_in).registrations() if registered_in else ()
    own = {record.rank: record for record in said if record.attempt == job.attempt}
    joined = _joined(job, backends, stacks)
    found = tuple(
        own.get(rank) or _record(job, process, gpus, joined.get(rank)) for rank, process in job.ranks.items()
    )
    return RankMap(job.world_size, found)


def _record(job: Job, process: RankProcess, gpus: GpuState, joined: float | None) -> RankRecord:
    name, uuid = gpus.device_of(process.pid)
    return RankRecord(
        rank=process.rank,
        host=platform.node(),
        pid=process.pid,
        local_rank=process.local_rank,
        attempt=job.attempt,
        world_size=job.world_size,
        device=name,
        device_uuid=uuid,
        started=process.started,
        joined=joined,
    )


def _joined(
    job: Job, backends: Mapping[int, Backends], stacks: Mapping[int, RankStacks]
) -> dict[int, float | None]:
    """When each rank's first group stood.

    Where torch does not name its threads: a rank's start, once any rank is past joining.
    """
    if any(found.joined for found in backends.values()):
        return {rank: found.joined for rank, found in backends.items()}
    mains = {rank: sample.own.main for rank, sample in stacks.items() if sample.own}
    doing = {rank: position(main).doing for rank, main in mains.items() if main}
    if not {"communication", "leaving"} & set(doing.values()):
        return {}
    return {rank: p.started for rank, p in job.ranks.items() if doing.get(rank) != "joining"}


def differing_variables(job: Job) -> list[tuple[int, str]]:
    """Rank and ``NAME=value`` for variables that should be alike on all ranks and are not."""
    readable = {rank: _shared(process) for rank, process in job.ranks.items() if process.environ}
    if not readable:
        return []
    first = readable[min(readable)]
    return [
        (rank, f"{name}={own.get(name, '(not set)')}")
        for rank, own in readable.items()
        for name in sorted({*own, *first})
        if own.get(name) != first.get(name)
    ]


def ranks_not_found(job: Job) -> list[Uncollected]:
    """Ranks that an agent of this machine should have and that have no process."""
    lacking: list[Uncollected] = []
    for agent in job.agents:
        mine = [p for p in job.ranks.values() if p.parent == agent]
        size = mine[0].environ.get("LOCAL_WORLD_SIZE", "")
        if not size.isdigit():
            continue
        expected = {mine[0].rank - mine[0].local_rank + local for local in range(int(size))}
        missing = expected - set(job.ranks)
        if missing:
            why = f"no process of it was looked at or found under pid {agent}"
            lacking.append(Uncollected(f"rank {format_ranks(missing)}", why))
    return lacking


def _shared(process: RankProcess) -> dict[str, str]:
    relevant = relevant_environment(process.environ)
    return {name: value for name, value in relevant.items() if name not in _OF_ONE_RANK}
