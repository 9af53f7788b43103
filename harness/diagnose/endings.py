"""How a job ended that did not break by itself: stopped from outside, stuck in shutdown, or recovered."""

import dataclasses

import numpy as np

from harness.diagnose.gathered import Gathered
from harness.diagnose.stalls import cite_stack, is_away
from harness.model.diagnosis import Citation
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

STOP_SIGNALS = frozenset(("SIGTERM", "SIGHUP", "SIGINT"))
STALL_FACTOR, STALL_FLOOR_S = 3.0, 2.0
"""A job that made no step for longer than this was not stopped in the middle of its work (DIAGNOSIS)."""


def stopped_from_outside(gathered: Gathered) -> Finding | None:
    """The launcher was signalled before anything else went wrong, and not by the harness.

    Source: DIAGNOSIS, logs, rule 4: only if no crash and no timeout precedes it.
    """
    exits, manifest = gathered.exits, gathered.manifest
    if exits is None or exits.outcome != "stopped" or manifest is None:
        return None
    at = exits.attempt.stopping
    if at is None or (manifest.stopped is not None and manifest.stopped <= at):
        return None
    if any(e.signal not in STOP_SIGNALS for e in exits.failures) or not _was_working(gathered, at):
        return None
    said = gathered.launcher_error or "it was signalled"
    steps = {p.step for p in gathered.progress.values()}
    where = f" after step {max(steps)}" if steps else ""
    return Finding(
        source="launcher",
        kind=Kind.EXTERNAL_STOP,
        confidence=Confidence.CERTAIN,
        summary=f"the job was stopped from outside{where}: the launcher says: {said}",
        victims=tuple(range(gathered.world_size)),
        evidence=(
            Citation("launcher", f"stopped, no rank had failed before: {said}", "launcher.json"),
            *(Citation("log", e.text, e.file, e.line) for e in gathered.cancelled[:1]),
        ),
        chain=("a signal from outside", "-> the launcher stops all ranks"),
    )


def _was_working(gathered: Gathered, at: float) -> bool:
    """Whether steps were still being completed when the stop came."""
    if not gathered.progress:
        return True
    last = max(p.t for p in gathered.progress.values())
    gaps = np.concatenate([p.gaps_s() for p in gathered.progress.values()])
    usual = float(np.median(gaps)) if len(gaps) else 0.0
    return at - last <= max(STALL_FACTOR * usual, STALL_FLOOR_S)


def stuck_in_shutdown(gathered: Gathered) -> Finding | None:
    """Every rank's training loop had ended; somebody does not come to its end."""
    records = gathered.ranks
    if len(records) < gathered.world_size or any(r.trained is None for r in records.values()):
        return None
    late = tuple(sorted(rank for rank, r in records.items() if r.finished is None))
    if not late or (gathered.exits is not None and gathered.exits.failures):
        return None
    away = tuple(rank for rank in late if is_away(rank, gathered))
    sure = bool(away) and 2 * len(away) < gathered.world_size
    who = f"rank {format_ranks(away)} is late" if sure else f"ranks {format_ranks(late)} do not end"
    return Finding(
        source="stack",
        kind=Kind.TEARDOWN_HANG,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=f"training is complete and its results are usable; {who} in shutdown",
        culprits=away if sure else (),
        victims=tuple(r for r in range(gathered.world_size) if r not in away),
        evidence=(
            Citation("launcher", "every rank has completed its training loop", "ranks.json"),
            *(cite_stack(gathered, rank, "sampled outside of shutdown") for rank in (away if sure else ())),
        ),
        chain=(f"{who} in shutdown",),
    )


def with_recovery(finding: Finding, gathered: Gathered) -> Finding:
    """A failure after which a restarted job went on: how long that took, and whether the loss continued."""
    exits = gathered.exits
    if exits is None or exits.resumed is None or not gathered.resumed or exits.first_failure_at is None:
        return finding
    first_done = max(p.first_end for p in gathered.resumed.values())
    seconds = first_done - exits.first_failure_at
    first = min(int(p.steps[0]) for p in gathered.resumed.values())
    loss = _loss_continues(gathered)
    return dataclasses.replace(
        finding,
        where=dataclasses.replace(finding.where, recovered=seconds),
        summary=f"{finding.summary}; restarted, and training went on from step {first} after {seconds:.1f} s",
        evidence=(*finding.evidence, *((loss,) if loss else ())),
        chain=(*finding.chain, f"-> attempt {exits.resumed.attempt} resumed at step {first} and finished"),
    )


def _loss_continues(gathered: Gathered) -> Citation | None:
    """Whether steps that both attempts ran had equal losses, as a checkpoint that is whole makes them."""
    for rank, after in sorted(gathered.resumed.items()):
        before = gathered.progress.get(rank)
        if before is None:
            continue
        ours, theirs = before.loss_by_step, after.loss_by_step
        common = sorted(ours.keys() & theirs.keys())
        if common:
            differing = [step for step in common if ours[step] != theirs[step]]
            steps = format_ranks(differing or common)
            says = (
                f"rank {rank}: loss of step {steps} {'differs' if differing else 'is equal'} in both attempts"
            )
            return Citation("signal", says, after.file, rank=rank)
    return None
