"""Who stalled: the dumps say who did not arrive, the stacks in what host code it sits."""

import dataclasses
from collections.abc import Sequence

from harness.diagnose.gathered import Gathered
from harness.diagnose.stacks.samples import Frame
from harness.diagnose.stacks.sites import position
from harness.model.diagnosis import Citation
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks


def stall(gathered: Gathered) -> Finding | None:
    """A rank that never issued what the others wait in, or several that the stacks tell apart."""
    if gathered.still_moving:
        return None
    for finding in gathered.flight.findings:
        if finding.kind is Kind.RANK_STALLED and finding.culprits:
            finished = [r for r in finding.culprits if _finished(r, gathered)]
            if finished:
                return _finished_early(finding, finished[0])
            return _described(finding, finding.culprits, gathered)
    for finding in gathered.flight.findings:
        away = tuple(r for r in finding.suspects if is_away(r, gathered))
        others = set(finding.suspects) - set(away)
        waiting = all(_is_waiting(rank, gathered) for rank in others)
        if finding.kind in (Kind.RANK_STALLED, Kind.INCONCLUSIVE) and away and waiting:
            return _described(_convicted(finding, away, gathered), away, gathered)
    return None


def is_away(rank: int, gathered: Gathered) -> bool:
    """Whether a rank was sampled outside of any communication, or stopped, while others waited."""
    own = gathered.stacks[rank].own if rank in gathered.stacks else None
    if own is None:
        return False
    return own.state == "stopped" or (bool(own.main) and position(own.main).doing == "code")


def _is_waiting(rank: int, gathered: Gathered) -> bool:
    own = gathered.stacks[rank].own if rank in gathered.stacks else None
    return own is not None and bool(own.main) and position(own.main).doing != "code"


def _finished(rank: int, gathered: Gathered) -> bool:
    record = gathered.ranks.get(rank)
    return record is not None and record.finished is not None


def _convicted(finding: Finding, away: tuple[int, ...], gathered: Gathered) -> Finding:
    """Suspects of the dumps whom the stacks convict."""
    where = finding.where
    who = f"rank {away[0]}" if len(away) == 1 else f"ranks {format_ranks(away)}"
    summary = f"{who} did not arrive at {where.op}, {where.group} seq {where.seq}, in which others wait"
    return dataclasses.replace(
        finding,
        kind=Kind.RANK_STALLED,
        confidence=Confidence.LIKELY,
        summary=summary,
        culprits=away,
        suspects=(),
        victims=tuple(r for r in range(gathered.world_size) if r not in away),
        chain=(summary,),
    )


def _finished_early(finding: Finding, rank: int) -> Finding:
    summary = f"rank {rank} came to its end while others still wait for it"
    return dataclasses.replace(
        finding,
        kind=Kind.RANK_EXITED,
        summary=summary,
        where=dataclasses.replace(finding.where, how="finished_early"),
        chain=(summary, *finding.chain[1:]),
        evidence=(
            *finding.evidence,
            Citation("launcher", f"rank {rank} finished", "ranks.json", rank=rank),
        ),
    )


def _described(finding: Finding, ranks: Sequence[int], gathered: Gathered) -> Finding:
    """The finding with what the culprits' main threads sit in."""
    where, cited, summary = finding.where, list(finding.evidence), finding.summary
    for rank in ranks:
        stacks = gathered.stacks.get(rank)
        own = stacks.own if stacks else None
        if own is None:
            continue
        if own.state == "stopped":
            where = dataclasses.replace(where, site="stopped")
            summary = f"rank {rank} is stopped (SIGSTOP) and its peers wait for it"
            cited.append(cite_stack(gathered, rank, "process state: stopped"))
        elif own.main:
            here = position(own.main)
            site = where.site or "user_code"
            frames = {**where.frames, rank: frames_text(own.main)}
            where = dataclasses.replace(where, site=site, frames=frames)
            doing = f"main thread in {here.frame or own.main[0]}"
            summary = f"{summary}; rank {rank} is in {here.frame or own.main[0]}"
            cited.append(cite_stack(gathered, rank, doing))
    return dataclasses.replace(finding, where=where, evidence=tuple(cited), summary=summary)


def frames_text(frames: Sequence[Frame]) -> tuple[str, ...]:
    """Frames from the innermost out to the script."""
    script = next((i for i, f in enumerate(frames) if f.name == "<module>"), len(frames))
    return tuple(str(frame) for frame in frames[: script + 1])


def cite_stack(gathered: Gathered, rank: int, says: str) -> Citation:
    """A stack sample as evidence."""
    return Citation("stack", f"rank {rank}: {says}", gathered.stacks[rank].file, rank=rank)
