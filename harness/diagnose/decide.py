"""Findings to one diagnosis: the only place that weighs one kind of evidence against another.

In this order: who died of a cause of its own, where the streams of collectives parted, who never joined,
who stalled, a healthy end, a fabric that does not move. Deaths that are themselves symptoms (gloo's
abort of a receiver, a lost connection, clean-up) decide nothing and are listed as ruled out.
"""

import dataclasses
from collections.abc import Callable, Iterable

from harness.diagnose.gathered import Gathered
from harness.diagnose.launcher.exits import exit_text
from harness.diagnose.logs.events import LogEvent
from harness.diagnose.stacks.sites import position
from harness.model.bundle import RankExit
from harness.model.diagnosis import Citation, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

_DIVERGED = frozenset(
    (
        Kind.COLLECTIVE_SIZE_MISMATCH,
        Kind.COLLECTIVE_DTYPE_MISMATCH,
        Kind.COLLECTIVE_TYPE_MISMATCH,
        Kind.COLLECTIVE_SKIPPED,
        Kind.COLLECTIVE_EXTRA,
        Kind.MICROBATCH_MISMATCH,
        Kind.COLLECTIVE_ORDER_MISMATCH,
        Kind.P2P_MISMATCH,
    )
)


def decide(gathered: Gathered) -> Finding:
    """The finding that explains the most, with what speaks against the others."""
    rules: tuple[Callable[[Gathered], Finding | None], ...] = (
        _own_death,
        _divergence,
        _never_joined,
        _stall,
        _healthy,
        _suspected,
        _fabric,
    )
    for rule in rules:
        finding = rule(gathered)
        if finding is not None:
            return _with_ruled_out(finding, gathered)
    return _inconclusive(gathered)


def _own_death(gathered: Gathered) -> Finding | None:
    """The first rank that ended of a cause of its own.

    Once anybody has failed, the others lose it: a later end without a cause in its log convicts nobody.
    """
    for order, exit_ in enumerate(gathered.exits.failures if gathered.exits else ()):
        explained = any(e.rank == exit_.rank and e.kind == "exception" for e in gathered.logs)
        if not _is_symptom(exit_, gathered) and (order == 0 or explained):
            return _death(exit_, gathered)
    return None


def _is_symptom(exit_: RankExit, gathered: Gathered) -> bool:
    """Whether a death follows from somebody else's fault: its only words are of lost communication."""
    events = [e for e in gathered.logs if e.rank == exit_.rank]
    if exit_.signal == "SIGABRT":
        return any(e.kind == "gloo_abort" for e in events)
    if exit_.code is not None and exit_.code > 0:
        return bool(events) and all(e.kind != "exception" for e in events)
    return False


def _death(exit_: RankExit, gathered: Gathered) -> Finding:
    rank = exit_.rank
    raised = next((e for e in gathered.logs if e.rank == rank and e.kind == "exception"), None)
    record = gathered.ranks.get(rank)
    joined = record is not None and record.joined is not None
    when = "" if joined else " before it joined the group"
    step = _step_of(rank, gathered)
    cited = (
        Citation("launcher", f"rank {rank} ended first: {exit_text(exit_)}", "launcher.json", rank=rank),
        *((_cite_log(raised),) if raised else ()),
    )
    if raised:
        kind, how = Kind.SOFTWARE_ERROR, "exception"
        summary = f"rank {rank} raised {raised.text}{when}"
    else:
        kind = Kind.RANK_EXITED
        how = "signal" if exit_.signal else "exit_code"
        summary = f"rank {rank} is gone: {exit_text(exit_)}{when}"
    return Finding(
        source="launcher",
        kind=kind,
        confidence=Confidence.CERTAIN,
        summary=summary,
        culprits=(rank,),
        victims=_others(gathered, (rank,)),
        where=Where(how=how, step=step),
        evidence=cited,
        chain=(summary, f"-> ranks {format_ranks(_others(gathered, (rank,)))} lose it"),
    )


def _divergence(gathered: Gathered) -> Finding | None:
    findings = [f for f in gathered.flight.findings if f.kind in _DIVERGED]
    if not findings:
        return None
    convicted = next((f for f in findings if f.culprits), findings[0])
    witnesses = _stack_witnesses(convicted, gathered)
    stepped = _with_step(convicted, gathered)
    return dataclasses.replace(stepped, evidence=(*stepped.evidence, *witnesses))


def _stack_witnesses(finding: Finding, gathered: Gathered) -> tuple[Citation, ...]:
    """What the accused and one peer were sampled in: a second witness beside their records."""
    accused = finding.culprits or finding.suspects
    peers = [rank for rank in finding.victims if rank in gathered.stacks]
    cited: list[Citation] = []
    for rank in (*accused, *peers[:1]):
        own = gathered.stacks[rank].own if rank in gathered.stacks else None
        if own is None or not own.main:
            continue
        here = position(own.main)
        inner = f"{here.call} called by " if here.call else ""
        cited.append(_cite_stack(gathered, rank, f"sampled in {inner}{here.frame or own.main[0]}"))
    return tuple(cited)


def _never_joined(gathered: Gathered) -> Finding | None:
    """Some ranks wait in joining for others that never came."""
    if not gathered.ranks or gathered.flight.graph.heads:
        return None
    joined = {r for r, record in gathered.ranks.items() if record.joined is not None}
    absent = tuple(sorted(set(range(gathered.world_size)) - set(gathered.ranks)))
    late = tuple(sorted(set(gathered.ranks) - joined))
    if joined or not (absent or late):
        return None
    at_the_door = tuple(
        rank
        for rank in late
        if rank in gathered.stacks
        and (own := gathered.stacks[rank].own)
        and position(own.main).doing == "joining"
    )
    culprits = absent or tuple(r for r in late if r not in at_the_door and r in gathered.stacks)
    certain = bool(culprits) and bool(at_the_door)
    who = f"rank {format_ranks(culprits)} never reached it" if culprits else "nobody is missing"
    return Finding(
        source="stack",
        kind=Kind.INIT_STUCK,
        confidence=Confidence.LIKELY if certain else Confidence.POSSIBLE,
        summary=f"the process group never formed: {who}",
        culprits=culprits if certain else (),
        suspects=() if certain else culprits,
        victims=_others(gathered, culprits),
        evidence=tuple(_cite_stack(gathered, rank, "waits in joining") for rank in at_the_door[:3]),
    )


def _stall(gathered: Gathered) -> Finding | None:
    """A rank that never issued what the others wait in; the stack says in what it sits."""
    if gathered.still_moving:
        return None
    for finding in gathered.flight.findings:
        if finding.kind is not Kind.RANK_STALLED or not finding.culprits:
            continue
        (rank,) = finding.culprits
        record = gathered.ranks.get(rank)
        if record is not None and record.finished is not None:
            return _finished_early(finding, rank)
        return _with_stack(_with_step(finding, gathered), rank, gathered)
    return None


def _suspected(gathered: Gathered) -> Finding | None:
    """Ranks that the dumps cannot tell apart."""
    return next((f for f in gathered.flight.findings if f.suspects), None)


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


def _with_stack(finding: Finding, rank: int, gathered: Gathered) -> Finding:
    stacks = gathered.stacks.get(rank)
    own = stacks.own if stacks else None
    if own is None:
        return finding
    if own.state == "stopped":
        summary = f"rank {rank} is stopped (SIGSTOP) and its peers wait for it"
        where = dataclasses.replace(finding.where, site="stopped")
        cited = _cite_stack(gathered, rank, "process state: stopped")
    elif own.main:
        here = position(own.main)
        summary = f"{finding.summary}; it is in {here.frame or own.main[0]}"
        where = dataclasses.replace(finding.where, site="user_code")
        cited = _cite_stack(gathered, rank, f"main thread in {here.frame or own.main[0]}")
    else:
        return finding
    frames = {**finding.where.frames, rank: tuple(str(f) for f in own.main)}
    return dataclasses.replace(
        finding,
        summary=summary,
        where=dataclasses.replace(where, frames=frames),
        evidence=(*finding.evidence, cited),
    )


def _fabric(gathered: Gathered) -> Finding | None:
    wanted = (Kind.GPU_STALLED, Kind.FABRIC_STALLED)
    return next((f for f in gathered.flight.findings if f.kind in wanted), None)


def _healthy(gathered: Gathered) -> Finding | None:
    exits = gathered.exits
    if exits is None or not exits.all_finished:
        return None
    steps = {p.step for p in gathered.progress.values()}
    done = f"{max(steps) + 1} steps" if len(steps) == 1 else "their steps"
    return Finding(
        source="launcher",
        kind=Kind.HEALTHY,
        confidence=Confidence.CERTAIN,
        summary=f"all {len(exits.attempt.pids)} ranks completed {done} and ended with exit code 0",
        evidence=(Citation("launcher", "every rank ended with exit code 0", "launcher.json"),),
    )


def _inconclusive(gathered: Gathered) -> Finding:
    if gathered.launcher_error and not gathered.exits:
        return Finding(
            source="launcher",
            kind=Kind.INCONCLUSIVE,
            confidence=Confidence.POSSIBLE,
            summary=f"no rank was started: {gathered.launcher_error}",
            evidence=(Citation("launcher", gathered.launcher_error, "launcher.json"),),
        )
    if gathered.still_moving and gathered.progress:
        last = max(p.step for p in gathered.progress.values())
        return Finding(
            source="decide",
            kind=Kind.INCONCLUSIVE,
            confidence=Confidence.POSSIBLE,
            summary=f"the job was still making steps (last: {last}) when its time was up",
        )
    missing = gathered.flight.evidence.missing
    lacking = f"; no dump of rank {format_ranks(missing)}" if missing else ""
    symptoms = [e for e in gathered.logs if e.kind != "exception"]
    return Finding(
        source="decide",
        kind=Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary=f"the evidence does not say who or what{lacking}",
        evidence=tuple(_cite_log(event) for event in symptoms[:3]),
    )


def _with_step(finding: Finding, gathered: Gathered) -> Finding:
    """The step in which the peers issued the call where the streams parted."""
    for rank in finding.victims or finding.suspects:
        issued = gathered.flight.issued_at(rank, finding.where)
        progress = gathered.progress.get(rank)
        if issued is None:
            continue
        step = progress.step_at(issued) if progress else 0
        where = dataclasses.replace(finding.where, step=step)
        return dataclasses.replace(finding, where=where)
    return finding


def _step_of(rank: int, gathered: Gathered) -> int | None:
    """The step that a rank was in: the one after the last that it recorded."""
    if rank in gathered.progress:
        return gathered.progress[rank].step + 1
    record = gathered.ranks.get(rank)
    return 0 if record is not None and record.joined is not None else None


def _with_ruled_out(finding: Finding, gathered: Gathered) -> Finding:
    ruled_out = list(finding.ruled_out)
    for exit_ in gathered.exits.failures if gathered.exits else ():
        if exit_.rank in finding.culprits or not _is_symptom(exit_, gathered):
            continue
        event = next(e for e in gathered.logs if e.rank == exit_.rank)
        because = f"rank {exit_.rank}'s {exit_text(exit_)} is a symptom: {event.file}:{event.line}"
        ruled_out.append(RuledOut(Kind.RANK_EXITED, because))
        break
    return dataclasses.replace(
        finding, ruled_out=tuple(ruled_out), evidence=(*finding.evidence, *_symptoms(gathered))
    )


def _symptoms(gathered: Gathered) -> Iterable[Citation]:
    """The first words of lost communication, as a further witness of the break."""
    aborts = [e for e in gathered.logs if e.kind == "gloo_abort"]
    lost = [e for e in gathered.logs if e.kind == "communication"]
    return [_cite_log(event) for event in (*aborts[:1], *lost[:1])]


def _cite_log(event: LogEvent) -> Citation:
    return Citation("log", event.text, event.file, event.line, rank=event.rank)


def _cite_stack(gathered: Gathered, rank: int, says: str) -> Citation:
    return Citation("stack", f"rank {rank}: {says}", gathered.stacks[rank].file, rank=rank)


def _others(gathered: Gathered, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(r for r in range(gathered.world_size) if r not in ranks)
