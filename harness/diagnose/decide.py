"""Findings to one diagnosis: the only place that weighs one kind of evidence against another.

In this order: a stop from outside, a card that broke, who died of a cause of its own, where the streams of
collectives parted, who never joined, who is late in shutdown, who stalled, what the step records say of a job
that ran on, a healthy end, suspects, a fabric that does not move, what hardware alone shows. Deaths that are
themselves symptoms (gloo's abort of a receiver, a lost connection, clean-up) decide nothing and are listed as
ruled out.
"""

import dataclasses
from collections.abc import Callable

from harness.diagnose.by_hardware import broken_hardware, hardware_alone, with_hardware
from harness.diagnose.by_logs import death_by_logs, hang_by_logs, healthy_by_logs, nothing_in_logs
from harness.diagnose.deaths import cite_log, ended_alike, is_symptom, own_death
from harness.diagnose.endings import stopped_from_outside, stuck_in_shutdown, with_recovery
from harness.diagnose.gathered import Gathered
from harness.diagnose.launcher.exits import exit_text
from harness.diagnose.logs.detail import cite_detail, detail_finding
from harness.diagnose.pipeline import aborted_receiver, broken_chain
from harness.diagnose.slopes import (
    dragging_by_stacks,
    read_again,
    records_alone,
    slope,
    stopped_alone,
    stopped_for_its_numbers,
)
from harness.diagnose.snapshots import running, while_it_may_yet_move
from harness.diagnose.stacks.sites import position
from harness.diagnose.stalls import cite_stack, is_communicating, stall, stall_by_stacks
from harness.model.diagnosis import Citation, RuledOut
from harness.model.finding import Finding
from harness.model.kinds import DIVERGED, Confidence, Kind
from harness.model.ranks import format_ranks


def decide(gathered: Gathered) -> Finding:
    """The finding that explains the most, with what speaks against the others."""
    rules: tuple[Callable[[Gathered], Finding | None], ...] = (
        stopped_from_outside,
        read_again,
        stopped_for_its_numbers,
        broken_hardware,
        death_by_logs,
        _own_death,
        _divergence,
        _reported_by_torch,
        _never_joined,
        stuck_in_shutdown,
        stall,
        lambda g: while_it_may_yet_move(stall_by_stacks(g), g),
        ended_alike,
        stopped_alone,
        hang_by_logs,
        slope,
        dragging_by_stacks,
        _healthy,
        running,
        healthy_by_logs,
        broken_chain,
        aborted_receiver,
        _fabric_by_stacks,
        _suspected,
        _fabric,
        hardware_alone,
        nothing_in_logs,
        records_alone,
    )
    for rule in rules:
        finding = rule(gathered)
        if finding is not None:
            explained = _with_ruled_out(_with_step(finding, gathered), gathered)
            return with_recovery(with_hardware(explained, gathered), gathered)
    return with_hardware(_inconclusive(gathered), gathered)


def _own_death(gathered: Gathered) -> Finding | None:
    diverged = any(f.kind in DIVERGED and f.culprits for f in gathered.flight.findings)
    return own_death(gathered, diverged)


def _divergence(gathered: Gathered) -> Finding | None:
    findings = [f for f in gathered.flight.findings if f.kind in DIVERGED]
    if not findings:
        return None
    convicted = _by_steps(next((f for f in findings if f.culprits), findings[0]), gathered)
    witnesses = _stack_witnesses(convicted, gathered)
    return dataclasses.replace(convicted, evidence=(*convicted.evidence, *witnesses))


def _reported_by_torch(gathered: Gathered) -> Finding | None:
    """What torch's own comparison (debug level DETAIL) says where the dumps do not."""
    return detail_finding(gathered.logs, gathered.world_size)


def _by_steps(finding: Finding, gathered: Gathered) -> Finding:
    """One micro-batch more looks like a skip into the next step; the steps on record tell them apart."""
    if finding.kind is not Kind.MICROBATCH_MISMATCH or not finding.culprits:
        return finding
    done = {rank: p.step for rank, p in gathered.progress.items()}
    ahead = all(
        rank in done and all(done[rank] > done.get(peer, done[rank]) for peer in finding.victims)
        for rank in finding.culprits
    )
    if not ahead:
        return finding
    where, who = finding.where, f"rank {format_ranks(finding.culprits)}"
    summary = f"{who} never issued {where.group} seq {where.seq}, {where.op}, and went on to its next step"
    chain = (f"{who}: collective skipped at {where.group} seq {where.seq}", *finding.chain[1:])
    return dataclasses.replace(finding, kind=Kind.COLLECTIVE_SKIPPED, summary=summary, chain=chain)


def _stack_witnesses(finding: Finding, gathered: Gathered) -> tuple[Citation, ...]:
    """What the accused and one peer were sampled in: a second witness beside their records."""
    accused = finding.culprits or finding.suspects
    peers = [rank for rank in finding.victims if rank in gathered.stacks]
    cited: list[Citation] = []
    for rank in (*accused, *peers[:1]):
        own = gathered.process(rank)
        if own is None or not own.main:
            continue
        here = position(own.main)
        inner = f"{here.call} called by " if here.call else ""
        cited.append(cite_stack(gathered, rank, f"sampled in {inner}{here.frame or own.main[0]}"))
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
        rank for rank in late if (own := gathered.process(rank)) and position(own.main).doing == "joining"
    )
    culprits = absent or tuple(r for r in late if r not in at_the_door and r in gathered.stacks)
    certain = bool(culprits) and bool(at_the_door)
    who = f"rank {format_ranks(culprits)} never reached it" if culprits else "nobody is missing"
    if not culprits and at_the_door and all(_asks_the_store(rank, gathered) for rank in at_the_door):
        who = "all ranks wait for the store, which does not answer"
    return Finding(
        source="stack",
        kind=Kind.INIT_STUCK,
        confidence=Confidence.LIKELY if certain else Confidence.POSSIBLE,
        summary=f"the process group never formed: {who}",
        culprits=culprits if certain else (),
        suspects=() if certain else culprits,
        victims=tuple(r for r in range(gathered.world_size) if r not in culprits),
        evidence=tuple(cite_stack(gathered, rank, "waits in joining") for rank in at_the_door[:3]),
    )


def _asks_the_store(rank: int, gathered: Gathered) -> bool:
    """Whether a rank was sampled while it connected to the rendezvous store."""
    own = gathered.process(rank)
    return own is not None and any("store" in frame.function for frame in own.main)


def _healthy(gathered: Gathered) -> Finding | None:
    exits = gathered.exits
    if exits is None:
        # No launcher: the dumps alone may show a job that just runs, or in which one rank drags.
        running = (Kind.STRAGGLER, Kind.HEALTHY)
        return next((f for kind in running for f in gathered.flight.findings if f.kind is kind), None)
    if not exits.all_finished:
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


def _fabric_by_stacks(gathered: Gathered) -> Finding | None:
    """gloo, all ranks sampled inside the collective: who still holds it has done its part as well."""
    findings = [
        f for f in gathered.flight.findings if f.kind is Kind.INCONCLUSIVE and f.where.seq is not None
    ]
    if gathered.still_moving or not findings or gathered.flight.evidence.missing:
        return None
    if any(e.code != 0 for e in (gathered.exits.own if gathered.exits else ())):
        return None
    if not all(is_communicating(rank, gathered) for rank in range(gathered.world_size)):
        return None
    where = findings[0].where
    return dataclasses.replace(
        findings[0],
        kind=Kind.FABRIC_STALLED,
        summary=(
            f"all of {where.group} joined {where.op}, seq {where.seq}; only some completed it, and all ranks "
            "wait inside a collective: messages do not arrive"
        ),
        suspects=(),
        victims=tuple(range(gathered.world_size)),
        evidence=(
            *findings[0].evidence,
            *(cite_stack(gathered, rank, "sampled in the collective") for rank in findings[0].suspects[:2]),
        ),
    )


def _suspected(gathered: Gathered) -> Finding | None:
    """Ranks that the dumps cannot tell apart."""
    if gathered.still_moving:
        return None
    return next((f for f in gathered.flight.findings if f.suspects), None)


def _fabric(gathered: Gathered) -> Finding | None:
    """Everybody joined and nothing completes; a job that still moved when looked at is no such thing."""
    if gathered.still_moving:
        return None
    wanted = (Kind.GPU_STALLED, Kind.FABRIC_STALLED)
    return next((f for f in gathered.flight.findings if f.kind in wanted), None)


def _inconclusive(gathered: Gathered) -> Finding:
    return Finding(
        source="decide",
        kind=Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary=_why_inconclusive(gathered),
        evidence=tuple(cite_log(event) for event in gathered.logs[:3]),
    )


def _why_inconclusive(gathered: Gathered) -> str:
    if gathered.launcher_error and not gathered.exits:
        return f"no rank was started: {gathered.launcher_error}"
    if gathered.still_moving and gathered.progress:
        last = max(p.step for p in gathered.progress.values())
        return f"the job was still making steps (last: {last}) when its time was up"
    if gathered.still_moving:
        return "the job's time was up before it made a step"
    if gathered.hardware.seen and not gathered.world_size:
        noted = f"; noted: {gathered.hardware.signs[0].says}" if gathered.hardware.signs else ""
        return (
            f"nothing is wrong with {gathered.hardware.seen} here, and nothing says how the job went{noted}"
        )
    missing = gathered.flight.evidence.missing
    lacking = f"; no dump of rank {format_ranks(missing)}" if missing else ""
    return f"the evidence does not say who or what{lacking}"


def _with_step(finding: Finding, gathered: Gathered) -> Finding:
    """The step in which the peers issued the call where the streams parted."""
    if finding.where.step is not None or finding.where.seq is None:
        return finding
    for rank in finding.victims or finding.suspects:
        issued = gathered.flight.issued_at(rank, finding.where)
        progress = gathered.progress.get(rank)
        if issued is None or not gathered.ranks or not gathered.records_steps:
            continue
        step = progress.step_at(issued) if progress else 0
        return dataclasses.replace(finding, where=dataclasses.replace(finding.where, step=step))
    return finding


def _with_ruled_out(finding: Finding, gathered: Gathered) -> Finding:
    """Deaths that are symptoms, said as such, and the first words of lost communication as a witness."""
    ruled_out = list(finding.ruled_out)
    for exit_ in gathered.exits.failures if gathered.exits else ():
        if exit_.rank in finding.culprits or not is_symptom(exit_, gathered):
            continue
        event = next(e for e in gathered.logs if e.rank == exit_.rank)
        because = f"rank {exit_.rank}'s {exit_text(exit_)} is a symptom: {event.file}:{event.line}"
        ruled_out.append(RuledOut(Kind.RANK_EXITED, because))
        break
    aborts = [e for e in gathered.logs if e.kind == "gloo_abort"]
    lost = [e for e in gathered.logs if e.kind == "communication"]
    reports = [] if finding.source == "log" else [e for e in gathered.logs if e.kind == "detail"]
    symptoms = [
        *(cite_detail(event) for event in reports[:1]),
        *(cite_log(event) for event in (*aborts[:1], *(() if reports else lost[:1]))),
    ]
    return dataclasses.replace(finding, ruled_out=tuple(ruled_out), evidence=(*finding.evidence, *symptoms))
