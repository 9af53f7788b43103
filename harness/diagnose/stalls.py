"""Who stalled: the dumps say who did not arrive, the stacks in what host code it sits."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from harness.diagnose.gathered import Gathered
from harness.diagnose.stacks.samples import Frame
from harness.diagnose.stacks.sites import NOT_RUNNING, Position, is_own, position, stall_site
from harness.model.diagnosis import Citation, Where
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
    if _others_died(gathered):
        return None
    for finding in gathered.flight.findings:
        away = tuple(r for r in finding.suspects if is_away(r, gathered))
        others = set(finding.suspects) - set(away)
        waiting = all(_is_waiting(rank, gathered) for rank in others)
        if finding.kind in (Kind.RANK_STALLED, Kind.INCONCLUSIVE) and away and waiting:
            return _described(_convicted(finding, away, gathered), away, gathered)
    return None


def stall_by_stacks(gathered: Gathered) -> Finding | None:
    """No dumps speak: most ranks wait in one and the same call, and the rest sit in code of their own.

    Source: DIAGNOSIS, stacks: the big cluster waits, the small one is the suspect. Convicted are those
    outside of communication, if more than half of all ranks wait in one place and nobody else is away. With
    GPUs a rank that waits on the host for a value may wait for a collective's kernel: it convicts nobody.
    """
    if gathered.still_moving or gathered.flight.graph.heads or len(gathered.stacks) < 3:
        return None
    if _others_died(gathered):
        return None
    away = tuple(r for r in sorted(gathered.stacks) if is_away(r, gathered))
    waiting = [r for r in sorted(gathered.stacks) if _is_waiting(r, gathered)]
    places = Counter(place_of(position_of(rank, gathered)) for rank in waiting)
    if not away or not places or len(away) + len(waiting) < gathered.world_size:
        return None
    sites = [stall_site(own) for rank in away if (own := gathered.process(rank))]
    if "item_sync" in sites and not gathered.on_cpus:
        return None
    (place, count), *_ = places.most_common()
    if 2 * count <= gathered.world_size or 2 * len(away) >= gathered.world_size:
        return None
    who = f"rank {away[0]} sits" if len(away) == 1 else f"ranks {format_ranks(away)} sit"
    peers = tuple(r for r in waiting if place_of(position_of(r, gathered)) == place)
    first = position_of(peers[0], gathered)
    summary = f"{who} in host code while ranks {format_ranks(peers)} wait in {first.call} ({first.frame})"
    # Two waiting ranks are a small cluster, and a rank that computes may be at honest work.
    sure = count >= 3 and not any(_computes(rank, gathered) for rank in away)
    finding = Finding(
        source="stack",
        kind=Kind.RANK_STALLED,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=summary,
        culprits=away if sure else (),
        suspects=() if sure else away,
        victims=tuple(r for r in range(gathered.world_size) if r not in away),
        where=Where(op=first.call, frames=_frames_of(peers[:1], gathered)),
        evidence=(cite_stack(gathered, peers[0], f"waits in {first.call} called by {first.frame}"),),
        chain=(summary,),
    )
    return _described(finding, away, gathered)


def _others_died(gathered: Gathered) -> bool:
    """Whether ranks have failed: where one that is about to lose them was sampled says nothing."""
    return gathered.exits is not None and bool(gathered.exits.failures)


def is_away(rank: int, gathered: Gathered) -> bool:
    """Whether a rank was sampled outside of any communication, or stopped, while others waited."""
    own = gathered.process(rank)
    if own is None:
        return False
    return own.state in NOT_RUNNING or (bool(own.main) and position(own.main).doing == "code")


def is_communicating(rank: int, gathered: Gathered) -> bool:
    """Whether a rank was sampled alive inside a collective."""
    own = gathered.process(rank)
    if own is None or own.state in NOT_RUNNING:
        return False
    return bool(own.main) and position(own.main).doing == "communication"


def _is_waiting(rank: int, gathered: Gathered) -> bool:
    own = gathered.process(rank)
    if own is None or own.state in NOT_RUNNING:
        return False
    return bool(own.main) and position(own.main).doing != "code"


def _computes(rank: int, gathered: Gathered) -> bool:
    """Whether a rank's main thread was running when it was sampled."""
    own = gathered.process(rank)
    return own is not None and own.state == "running"


def position_of(rank: int, gathered: Gathered) -> Position:
    """Where a rank's main thread was sampled."""
    own = gathered.process(rank)
    return position(own.main if own else ())


def place_of(here: Position) -> tuple[str | None, str | None]:
    """What makes two ranks wait in one place: torch's function, and the line that called it."""
    return here.call, str(here.frame) if here.frame else None


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


_SITE_WORDS = {
    "stopped": "is stopped (SIGSTOP) and its peers wait for it",
    "item_sync": "waits on the host for a value",
    "dataloader": "waits for its data loader",
    "lock": "waits for a lock",
    "logging": "waits in a log handler",
    "gil": "keeps the GIL in native code",
    "checkpoint": "is busy with a checkpoint",
    "io": "waits for input or output",
}


def _described(finding: Finding, ranks: Sequence[int], gathered: Gathered) -> Finding:
    """The finding with what the culprits' main threads sit in."""
    where, cited, summary = finding.where, list(finding.evidence), finding.summary
    for rank in ranks:
        stacks = gathered.stacks.get(rank)
        own = stacks.own if stacks else None
        if stacks is None or own is None or not (own.main or own.state in NOT_RUNNING):
            continue
        site = stall_site(own)
        where = dataclasses.replace(where, site=where.site or site)
        if site == "stopped":
            summary = f"rank {rank} {_SITE_WORDS[site]}"
            cited.append(cite_stack(gathered, rank, f"process state: {own.state}"))
            continue
        if not own.main:
            summary = f"{summary}; rank {rank}'s process is in state {own.state}"
            cited.append(cite_stack(gathered, rank, f"process state: {own.state}"))
            continue
        here = position(own.main)
        place = here.frame or own.main[0]
        frames = {**where.frames, rank: frames_text(own.main)}
        where = dataclasses.replace(where, frames=frames)
        summary = f"{summary}; rank {rank} {_SITE_WORDS.get(site, 'is in its own code')}: {place}"
        source = f": {place.source.strip()}" if place.source else ""
        cited.append(cite_stack(gathered, rank, f"main thread in {place}{source}"))
        for child in stacks.children:
            inner = position(child.main).frame or child.main[0]
            said = f": {inner.source.strip()}" if inner.source else ""
            cited.append(cite_stack(gathered, rank, f"its child process {child.pid} is in {inner}{said}"))
    return dataclasses.replace(finding, where=where, evidence=tuple(cited), summary=summary)


def _frames_of(ranks: Sequence[int], gathered: Gathered) -> dict[int, tuple[str, ...]]:
    """Sampled frames of some ranks, innermost first."""
    return {
        rank: frames_text(own.main)
        for rank in ranks
        if (own := gathered.process(rank)) is not None and own.main
    }


def frames_text(frames: Sequence[Frame]) -> tuple[str, ...]:
    """The library's function that the innermost own code called, if any, and own code out to the script."""
    script = next((i for i, f in enumerate(frames) if f.name == "<module>"), len(frames))
    shown = frames[: script + 1]
    at = next((i for i, f in enumerate(shown) if is_own(f)), 0)
    called = [f for f in shown[:at] if not f.function.endswith("wrapper")][-1:]
    return tuple(str(frame) for frame in (*called, *shown[at:]))


def cite_stack(gathered: Gathered, rank: int, says: str) -> Citation:
    """A stack sample as evidence."""
    return Citation("stack", f"rank {rank}: {says}", gathered.stacks[rank].file, rank=rank)
