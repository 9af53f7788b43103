"""`diagnose(PATH)`: files in, one diagnosis out. The same code for a drill and for an incident."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.diagnose.by_logs import against_logs, symptoms, weighed_with_logs
from harness.diagnose.decide import decide
from harness.diagnose.gathered import Gathered, gather
from harness.diagnose.job import (
    heard_in_logs,
    hosts_by_logs,
    job_of,
    locations_by_logs,
    next_by_logs,
    recommended_by_logs,
)
from harness.diagnose.launcher.exits import exit_text
from harness.diagnose.logs.read import Reading
from harness.diagnose.remedies import hardware_steps, next_steps, recommendations
from harness.diagnose.runbook import section_of
from harness.diagnose.signals.thresholds import DEFAULTS, Thresholds
from harness.diagnose.stalls import frames_text
from harness.diagnose.texts.globs import is_glob
from harness.diagnose.texts.pool import OnProgress
from harness.model.breaktable import BreakTable
from harness.model.diagnosis import (
    Diagnosis,
    Location,
    RankCensus,
    RankState,
    Recommendation,
    Revision,
    TimelineEntry,
    Where,
)
from harness.model.errors import PrerequisiteError
from harness.model.finding import Finding
from harness.model.kinds import GOES_ON, Kind, category_of
from harness.model.ranks import format_ranks


@dataclass(frozen=True)
class Result:
    """A diagnosis, and what a person wants to see beside it. `stacks`: rank -> frames, innermost first."""

    diagnosis: Diagnosis
    table: BreakTable | None
    stacks: Mapping[int, tuple[str, ...]]


def diagnose(
    *paths: Path,
    world_size: int | None = None,
    on_progress: OnProgress = lambda done, total: None,
    limits: Thresholds = DEFAULTS,
    logs: Reading | None = None,
) -> Result:
    """Diagnose a bundle, or Flight Recorder dumps from any folders, files and archives.

    `world_size` counts only where the files do not record it. `on_progress` is called with how many of
    how many dumps are loaded. `limits`: what counts as slow, late, growing in step records. `logs`: those
    under `paths`, where somebody began to read them already (`logs_ahead`).

    Raises:
        PrerequisiteError: nothing under `paths` is readable evidence.
    """
    return conclude(read_evidence(paths, world_size, on_progress, limits, logs))


def conclude(gathered: Gathered, finding: Finding | None = None) -> Result:
    """Weigh what was gathered, or put what is known around a finding that was reached otherwise."""
    finding = finding or decide(gathered)
    finding, revised = weighed_with_logs(finding, gathered)
    if finding.source == "log" and gathered.text.finding is not None:
        finding, revised = against_logs(finding, gathered), gathered.text.revised
    sampled = {
        rank: frames_text(own.main)
        for rank, stacks in gathered.stacks.items()
        if (own := stacks.own) and own.main
    }
    return Result(_diagnosis(finding, gathered, revised), gathered.flight.table(finding), sampled)


def read_evidence(
    paths: Sequence[Path],
    world_size: int | None = None,
    on_progress: OnProgress = lambda done, total: None,
    limits: Thresholds = DEFAULTS,
    logs: Reading | None = None,
) -> Gathered:
    """Read everything under `paths`, not yet weighed.

    Raises:
        PrerequisiteError: a path does not exist, or nothing there is evidence.
    """
    for path in paths:
        if not path.exists() and not is_glob(path):
            raise PrerequisiteError(f"{path} does not exist: give a bundle, dumps or an archive of dumps")
    gathered = gather(paths, world_size, on_progress, limits, logs)
    if gathered.empty:
        raise PrerequisiteError(_nothing(paths[0], gathered))
    return gathered


def _nothing(root: Path, gathered: Gathered) -> str:
    """Why there is nothing to diagnose, and what to do."""
    if gathered.manifest is not None:
        reached = gathered.manifest.phases[-1] if gathered.manifest.phases else "created"
        return f"{root}: this run left no evidence: it ended in phase '{reached}'; run it again"
    if (root / "latest").exists():
        return f"{root}: this folder holds runs; give one of them, for instance {root / 'latest'}"
    unreadable = "; ".join(gathered.complaints[:5])
    expected = "a bundle, Flight Recorder dumps, step records or logs of a training job"
    return f"{root}: nothing readable here: expected {expected}" + (f" ({unreadable})" if unreadable else "")


def _diagnosis(finding: Finding, gathered: Gathered, revised: tuple[Revision, ...] = ()) -> Diagnosis:
    return Diagnosis(
        kind=finding.kind,
        category=category_of(finding.kind, finding.where.site),
        confidence=finding.confidence,
        summary=finding.summary,
        culprits=tuple(sorted(finding.culprits)),
        suspects=tuple(sorted(finding.suspects)) if not finding.culprits else (),
        at=_locations(finding, gathered),
        victims=finding.victims,
        where=_with_hosts(finding, gathered),
        ranks=_census(gathered),
        job=job_of(gathered),
        evidence=finding.evidence,
        ruled_out=(*finding.ruled_out, *symptoms(gathered)),
        chain=finding.chain,
        timeline=_timeline(gathered),
        next_steps=_next_steps(finding, gathered),
        runbook=section_of(finding.kind),
        recommendations=_recommendations(finding, gathered),
        key_files=_key_files(finding, gathered),
        revised=revised,
        missing_evidence=_missing(gathered),
        tiers=gathered.text.tiers,
        clocks=gathered.text.clocks,
    )


def _with_hosts(finding: Finding, gathered: Gathered) -> Where:
    """`where` with the hosts of the accused."""
    accused = finding.culprits or finding.suspects
    hosts = {gathered.ranks[rank].host for rank in accused if rank in gathered.ranks}
    hosts |= hosts_by_logs(accused, gathered)
    return dataclasses.replace(finding.where, hosts=tuple(sorted(hosts | set(finding.where.hosts))))


def _locations(finding: Finding, gathered: Gathered) -> dict[int, Location]:
    accused = sorted(finding.culprits or finding.suspects)
    known = {
        rank: Location(record.host, record.pid, record.device, record.local_rank)
        for rank in accused
        if (record := gathered.ranks.get(rank))
    }
    return {**locations_by_logs(accused, gathered), **known}


def _census(gathered: Gathered) -> RankCensus:
    seen = set(gathered.flight.evidence.tables) | set(gathered.stacks) | set(gathered.progress)
    seen |= heard_in_logs(gathered)
    everybody = set(range(gathered.world_size))
    return RankCensus(
        expected=gathered.world_size or None,
        with_evidence=format_ranks(seen),
        missing=format_ranks(everybody - seen),
        states=_states(gathered) or gathered.text.states,
    )


def _states(gathered: Gathered) -> tuple[RankState, ...]:
    """Like ranks together, the fewest first: they are the outliers."""
    exits = {e.rank: e for e in gathered.exits.attempt.exits} if gathered.exits else {}
    progress = gathered.flight.progress()
    alike: dict[tuple[str | None, int | None, int | None, bool | None, str | None], list[int]] = {}
    for rank in sorted({*progress, *exits}):
        exit_ = exits.get(rank)
        ended = exit_text(exit_) if exit_ and not exit_.cleanup else None
        alive = None if exit_ is None and rank not in gathered.stacks else ended is None
        for group, enqueued, completed in progress.get(rank, ((None, None, None),)):
            alike.setdefault((group, enqueued, completed, alive, ended), []).append(rank)
    rows = sorted(alike.items(), key=lambda row: (len(row[1]), row[1]))
    return tuple(
        RankState(format_ranks(ranks), group, enqueued, completed, alive, ended)
        for (group, enqueued, completed, alive, ended), ranks in rows
    )


def _timeline(gathered: Gathered) -> tuple[TimelineEntry, ...]:
    entries: list[TimelineEntry] = []
    joined = [r.joined for r in gathered.ranks.values() if r.joined is not None]
    if joined:
        entries.append(TimelineEntry(max(joined), "all that joined had joined", file="ranks.json"))
    if gathered.progress:
        last = max(gathered.progress.values(), key=lambda p: p.t)
        what = f"last completed step: {last.step}"
        entries.append(TimelineEntry(last.t, what, last.rank, last.file, last.line))
    for exit_ in gathered.exits.own if gathered.exits else ():
        if exit_.at is not None:
            what = f"ended: {exit_text(exit_)}"
            entries.append(TimelineEntry(exit_.at, what, exit_.rank, "launcher.json"))
    entries.extend(gathered.text.timeline)
    return tuple(sorted(entries, key=lambda entry: entry.at))


def _next_steps(finding: Finding, gathered: Gathered) -> tuple[str, ...]:
    """Commands that can be pasted, or the place to read."""
    where = finding.where
    if finding.kind is Kind.HEALTHY:
        return ()
    if gathered.text.is_log and (finding.source == "log" or finding.kind is Kind.INCONCLUSIVE):
        return next_by_logs(finding, gathered)
    if finding.source == "gpu":
        return hardware_steps(finding.kind, finding.evidence)
    if finding.source == "signal" and finding.kind in GOES_ON:
        accused = finding.culprits or finding.suspects
        return next_steps(finding.kind, accused, where, gathered.on_cpus)
    if finding.kind is Kind.COLLECTIVE_SKIPPED and where.expected and where.expected.site:
        return (f"# read {where.expected.site}: which rank-dependent condition leaves that call out?",)
    found = next(iter(where.found.values()), None)
    if found is not None and found.site:
        return (f"# read {found.site}: what takes rank-dependent input there?",)
    logs = [c for c in finding.evidence if c.source == "log" and c.file]
    if logs:
        return tuple(f"less +{c.line or 1} {c.file}" for c in logs[:2])
    if finding.culprits and finding.where.how:
        return (
            f"less logs/*/attempt_*/{finding.culprits[0]}/stderr.log",
            "dmesg -T | grep -i -E 'killed|xid'",
        )
    if gathered.exits is not None and gathered.exits.own:
        return ("less launcher.log",)
    if finding.kind is Kind.INCONCLUSIVE:
        return (
            "py-spy dump --nonblocking --pid PID   # on every rank, while it still hangs",
            "export TORCH_FR_DUMP_TEMP_FILE=/persistent/path/rank_   # before the next start",
        )
    return ()


def _key_files(finding: Finding, gathered: Gathered) -> tuple[str, ...]:
    cited = [c.file for c in finding.evidence if c.file]
    files = tuple(dict.fromkeys((*cited, *gathered.text.key_files)))
    return files or gathered.key_files[:3]


def _missing(gathered: Gathered) -> tuple[str, ...]:
    manifest = gathered.manifest
    collected = [f"{u.what}: {u.why}" for u in manifest.not_collected] if manifest else []
    notes = manifest.notes if manifest else ()
    absent = gathered.flight.evidence.missing
    dumps = [f"no flight recorder dump of rank {format_ranks(absent)}"] if absent else []
    if gathered.text.is_log and not gathered.flight.evidence.tables:
        dumps = []
    hardware = gathered.hardware.missing
    # Of frameworks one rank prints the steps of all.
    signals = () if gathered.text.speaks and gathered.only_records else gathered.signals.missing
    return (*collected, *dumps, *notes, *gathered.text.missing, *signals, *hardware, *gathered.complaints)


def _recommendations(finding: Finding, gathered: Gathered) -> tuple[Recommendation, ...]:
    """What to change: known causes of a job that runs on, and of one that broke."""
    if finding.source == "log":
        return recommended_by_logs(finding, gathered)
    return recommendations(finding.kind, finding.where, gathered.on_cpus)
