"""`diagnose(PATH)`: files in, one diagnosis out. The same code for a drill and for an incident."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.diagnose.decide import decide
from harness.diagnose.gathered import Gathered, gather
from harness.diagnose.launcher.exits import exit_text
from harness.model.breaktable import BreakTable
from harness.model.diagnosis import (
    Diagnosis,
    Job,
    Location,
    RankCensus,
    RankState,
    TimelineEntry,
)
from harness.model.errors import PrerequisiteError
from harness.model.finding import Finding
from harness.model.kinds import Kind, category_of
from harness.model.ranks import format_ranks


@dataclass(frozen=True)
class Result:
    """A diagnosis, and what a person wants to see beside it. `stacks`: rank -> frames, innermost first."""

    diagnosis: Diagnosis
    table: BreakTable | None
    stacks: Mapping[int, tuple[str, ...]]


def diagnose(root: Path, world_size: int | None = None) -> Result:
    """Diagnose a bundle.

    Raises:
        PrerequisiteError: nothing under `root` is readable evidence.
    """
    if not root.exists():
        raise PrerequisiteError(f"{root} does not exist: give a bundle, for instance runs/latest")
    gathered = gather(root, world_size)
    if gathered.empty:
        raise PrerequisiteError(
            f"{root}: nothing here is evidence: expected a bundle with flight_recorder/, stacks/, "
            "signals/ or launcher.json"
        )
    finding = decide(gathered)
    sampled = {
        rank: tuple(str(frame) for frame in own.main)
        for rank, stacks in gathered.stacks.items()
        if (own := stacks.own) and own.main
    }
    return Result(_diagnosis(finding, gathered), gathered.flight.table(finding), sampled)


def _diagnosis(finding: Finding, gathered: Gathered) -> Diagnosis:
    return Diagnosis(
        kind=finding.kind,
        category=category_of(finding.kind, finding.where.site),
        confidence=finding.confidence,
        summary=finding.summary,
        culprits=tuple(sorted(finding.culprits)),
        suspects=tuple(sorted(finding.suspects)) if not finding.culprits else (),
        at=_locations(finding, gathered),
        victims=finding.victims,
        where=finding.where,
        ranks=_census(gathered),
        job=Job(
            framework="torch",
            nodes=len({r.host for r in gathered.ranks.values()}) or None,
            started=min((r.started for r in gathered.ranks.values() if r.started), default=None),
            last_step=max((p.step for p in gathered.progress.values()), default=None),
        ),
        evidence=finding.evidence,
        ruled_out=finding.ruled_out,
        chain=finding.chain,
        timeline=_timeline(gathered),
        next_steps=_next_steps(finding),
        key_files=_key_files(finding, gathered),
        missing_evidence=_missing(gathered),
    )


def _locations(finding: Finding, gathered: Gathered) -> dict[int, Location]:
    return {
        rank: Location(record.host, record.pid, record.device, record.local_rank)
        for rank in sorted(finding.culprits or finding.suspects)
        if (record := gathered.ranks.get(rank))
    }


def _census(gathered: Gathered) -> RankCensus:
    seen = set(gathered.flight.evidence.tables) | set(gathered.stacks) | set(gathered.progress)
    everybody = set(range(gathered.world_size))
    exits = {e.rank: e for e in gathered.exits.attempt.exits} if gathered.exits else {}
    states = gathered.flight.states() or tuple(
        RankState(format_ranks([rank]), exit=exit_text(e)) for rank, e in sorted(exits.items())
    )
    return RankCensus(
        expected=gathered.world_size or None,
        with_evidence=format_ranks(seen),
        missing=format_ranks(everybody - seen),
        states=states,
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
    return tuple(sorted(entries, key=lambda entry: entry.at))


def _next_steps(finding: Finding) -> tuple[str, ...]:
    found = next(iter(finding.where.found.values()), None)
    if finding.kind is Kind.HEALTHY:
        return ()
    if finding.kind is Kind.INCONCLUSIVE:
        return (
            "py-spy dump --nonblocking --pid PID   # on every rank, while it still hangs",
            "export TORCH_FR_DUMP_TEMP_FILE=/persistent/path/rank_   # before the next start",
        )
    if found is not None and found.site:
        return (f"# read the call at {found.site}: what takes rank-dependent input there?",)
    return ()


def _key_files(finding: Finding, gathered: Gathered) -> tuple[str, ...]:
    cited = [c.file for c in finding.evidence if c.file]
    return tuple(dict.fromkeys(cited)) or gathered.key_files[:3]


def _missing(gathered: Gathered) -> tuple[str, ...]:
    manifest = gathered.manifest
    collected = [f"{u.what}: {u.why}" for u in manifest.not_collected] if manifest else []
    absent = gathered.flight.evidence.missing
    dumps = [f"no flight recorder dump of rank {format_ranks(absent)}"] if absent else []
    return (*collected, *dumps, *gathered.complaints)
