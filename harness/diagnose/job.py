"""The job itself as all evidence describes it: framework, size, start, state, places of ranks, advice."""

import dataclasses
from collections.abc import Iterable

from harness.diagnose.gathered import Gathered
from harness.diagnose.logs.aistore.fetch import fetch_commands
from harness.diagnose.logs.aistore.pitfalls import Pitfall, pitfalls_in
from harness.diagnose.logs.causes import look_next, recommend
from harness.diagnose.logs.heads import JobHead
from harness.diagnose.logs.heads_facts import Fact
from harness.diagnose.logs.room import STORAGE_LINES
from harness.model.diagnosis import Citation, Job, Location, Recommendation
from harness.model.finding import Finding
from harness.model.kinds import Kind

MAX_STATED = 8


def job_of(gathered: Gathered) -> Job:
    """What is known of the job, and the lines that it rests on."""
    head, ranks = gathered.text.head, gathered.ranks
    steps = [p.step for p in gathered.progress.values()]
    story = gathered.text.story
    if story is not None:
        steps += [e.numbers["step"] for e in story.of("step")]
        hosts = {*story.census.hosts.values(), *story.census.file_hosts.values()}
    else:
        hosts = set[str]()
    resumed = head.resumed_from.value or (
        f"step {head.resumed_step.value}" if head.resumed_step.value is not None else None
    )
    started = min((r.started for r in ranks.values() if r.started), default=None)
    return Job(
        framework=head.framework.value or "torch",
        nodes=len({r.host for r in ranks.values()}) or head.nodes.value or len(hosts) or None,
        started=started if started is not None else _started(gathered),
        resumed_from=resumed,
        last_step=max(steps, default=None),
        state=_state(gathered),
        stated=_stated(head),
    )


def _started(gathered: Gathered) -> float | None:
    """The first time that any log bears, as unix seconds; a zone that is not stated is taken as UTC."""
    story = gathered.text.story
    if story is None:
        return None
    first = [
        moment.at
        for clock in story.clocks.values()
        if clock.basis == "unix" and clock.date != "unknown"
        for moment in clock.moments[:1]
        if moment.at is not None
    ]
    return min(first, default=None)


def _state(gathered: Gathered) -> str | None:
    """Hung, crashed, restarting, stopped, finished or running, where the logs say so."""
    story, finding = gathered.text.story, gathered.text.finding
    if story is None or not gathered.text.is_log:
        return None
    if finding is not None and finding.kind is Kind.RESTART_LOOP:
        return "restarting"
    if finding is not None and finding.kind is Kind.HEALTHY:
        return "finished"
    if finding is not None and finding.kind is Kind.EXTERNAL_STOP:
        return "stopped"
    if finding is not None and finding.kind is Kind.TEARDOWN_HANG:
        return "finished"
    if (
        story.waits.waiting
        or story.waits.weak
        or story.of("heartbeat", "barrier_missed", "gloo_wait", "init_timeout")
    ):
        hangs = finding is None or finding.kind in _HANGS
        return "hung" if hangs else "crashed"
    if finding is not None:
        return "crashed"
    if story.of("completed"):
        return "finished"
    return "running" if story.of("step") else None


_HANGS = frozenset(
    (
        *(Kind.RANK_STALLED, Kind.FABRIC_STALLED, Kind.GPU_STALLED, Kind.INIT_STUCK, Kind.CHECKPOINT_SLOW),
        *(Kind.COLLECTIVE_SKIPPED, Kind.COLLECTIVE_EXTRA, Kind.COLLECTIVE_SIZE_MISMATCH),
        *(Kind.COLLECTIVE_TYPE_MISMATCH, Kind.COLLECTIVE_DTYPE_MISMATCH, Kind.INCONCLUSIVE),
    )
)


def _stated(head: JobHead) -> tuple[Citation, ...]:
    facts: tuple[tuple[str, Fact[str] | Fact[int]], ...] = (
        ("framework", head.framework),
        ("world size", head.world_size),
        ("nodes", head.nodes),
        ("ranks a node", head.ranks_per_node),
        ("resumed from", head.resumed_from),
        ("resumed at step", head.resumed_step),
    )
    found: list[Citation] = []
    for name, fact in facts:
        for said in fact.stated[: 2 if fact.disputed else 1]:
            what = f"{name} {said.value}" + (" (contradicted)" if fact.disputed else "")
            found.append(Citation("log", f"{what}: {said.text}", said.file, said.line))
    found += [Citation("log", f"data from {s.value}", s.file, s.line) for s in head.sources[:2]]
    return tuple(found[:MAX_STATED])


def heard_in_logs(gathered: Gathered) -> set[int]:
    """Ranks that speak in any log."""
    story = gathered.text.story
    return {r for r in story.census.heard if r < max(gathered.world_size, 1)} if story else set()


def hosts_by_logs(ranks: Iterable[int], gathered: Gathered) -> set[str]:
    """The machines of some ranks, as logs name them."""
    story = gathered.text.story
    return {story.census.hosts[r] for r in ranks if r in story.census.hosts} if story else set()


def locations_by_logs(ranks: Iterable[int], gathered: Gathered) -> dict[int, Location]:
    """Where ranks run, as logs name it."""
    story = gathered.text.story
    if story is None:
        return {}
    found: dict[int, Location] = {}
    for rank in ranks:
        pids = [pid for (host, pid), owner in story.census.pids.items() if owner == rank]
        pci = gathered.text.head.pci.get(rank)
        local = next(
            (e.local_rank for e in story.events if e.rank == rank and e.local_rank is not None), None
        )
        where = Location(
            story.census.hosts.get(rank), pids[0] if pids else None, pci.value if pci else None, local
        )
        if where != Location():
            found[rank] = where
    return found


def next_by_logs(finding: Finding, gathered: Gathered) -> tuple[str, ...]:
    """Commands that can be pasted: what is missing, what to look at, what to set before the next start."""
    text = gathered.text
    assert text.story is not None
    where = dataclasses.replace(
        finding.where, hosts=tuple(sorted({*finding.where.hosts, *hosts_by_logs(finding.culprits, gathered)}))
    )
    commands = look_next(
        finding.kind,
        finding.culprits or finding.suspects,
        where,
        text.head.framework.value,
        text.story.census.silent,
        text.story.census.hosts,
    )
    speaks_of_ais = any(e.what == "ais_loader" for e in text.story.events)
    fetch = fetch_commands() if speaks_of_ais and text.storage is None else ()
    more = text.storage.next_steps if text.storage else ()
    return tuple(dict.fromkeys((*commands, *fetch, *more)))


def known_traps(finding: Finding, gathered: Gathered) -> tuple[Pitfall, ...]:
    """Known traps of data loaders whose words stand in the logs, where the finding is about data."""
    story = gathered.text.story
    about_data = finding.kind in _OF_DATA or finding.where.site in ("dataloader", "io")
    if story is None or not about_data:
        return ()
    said = [e for e in story.events if e.what in (*STORAGE_LINES, "exception", "ais_loader", "storage")]
    found = {trap.name: trap for e in said for trap in pitfalls_in(" ".join((e.text, *e.words.values())))}
    return tuple(found.values())


_OF_DATA = frozenset((Kind.STORAGE_FAILURE, Kind.DATA_CORRUPT, Kind.DATA_STARVED))


def recommended_by_logs(finding: Finding, gathered: Gathered) -> tuple[Recommendation, ...]:
    """What to change, by side."""
    text = gathered.text
    traps = tuple(t.recommendation for t in known_traps(finding, gathered) if t.role != "noise")
    own = (*traps, *recommend(finding.kind, finding.where, text.head.framework.value))
    storage = text.storage.recommendations if text.storage and text.storage.side != "calm" else ()
    return tuple(dict.fromkeys((*storage, *own)))
