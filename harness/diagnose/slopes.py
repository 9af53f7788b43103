"""A job that goes on, slower or wrong: what its step records say, with other witnesses."""

import dataclasses
import re
import time

from harness.diagnose.gathered import Gathered
from harness.diagnose.movement import MOVING
from harness.diagnose.signals.spans import left_open
from harness.diagnose.signals.standing import behind, standing
from harness.diagnose.signals.wording import verb, who
from harness.diagnose.stacks.apart import WORDS, cite_shares, who_waits_least
from harness.model.diagnosis import Citation, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

LEAST_RUNNABLE, CROWDED = 0.3, 3.0
"""Who is crowded out wants to run in so many of the samples, and does in a third of those at most."""

LEAST_CAUGHT = 3
"""So often at least it must have been caught wanting to run: once happens to any rank."""


_NOT_A_NUMBER = re.compile(r"\b(?:nan|inf|infinite|infinity)\b|n[o']t finite|non-?finite", re.IGNORECASE)


def read_again(gathered: Gathered) -> Finding | None:
    """A restarted job whose loader lost its place: what is wrong now outweighs a failure that is over."""
    if not gathered.resumed:
        return None
    return _first(gathered, frozenset((Kind.DATA_CORRUPT,)))


def stopped_for_its_numbers(gathered: Gathered) -> Finding | None:
    """A job that ended itself since its loss was not finite: the exception is only its word for it."""
    found = _first(gathered, frozenset((Kind.LOSS_NOT_FINITE,)))
    said = next((e for e in gathered.logs if e.kind == "exception" and _NOT_A_NUMBER.search(e.text)), None)
    if found is None or said is None:
        return None
    cited = Citation("log", said.text, said.file, said.line, rank=said.rank)
    return dataclasses.replace(found, evidence=(*found.evidence, cited))


def slope(gathered: Gathered) -> Finding | None:
    """What the step records of a job that ran on say: wrong numbers, few slow ranks, or all of them."""
    exits = gathered.exits
    if exits is not None and not exits.all_finished and exits.resumed is None and not gathered.still_moving:
        return None
    found = _first(gathered)
    if found is None:
        return None
    others = [f for f in gathered.signals.findings if f.kind is not found.kind]
    extra = tuple(c for f in others[:2] for c in f.evidence[:1])
    also = tuple(f"also: {f.summary}" for f in others[:2])
    weighed = _with_witnesses(found, gathered)
    return dataclasses.replace(weighed, evidence=(*weighed.evidence, *extra), chain=(*weighed.chain, *also))


def stopped_alone(gathered: Gathered) -> Finding | None:
    """Step records and nothing else: ranks that made no step any more outweigh what grew before."""
    if not gathered.only_records:
        return None
    return behind(gathered.signals.steps)


def dragging_by_stacks(gathered: Gathered) -> Finding | None:
    """A job that moved when it was sampled, and a rank at work while its peers wait: a suspect, no more.

    A rank that saves for all of them, or that was stopped, is at work as well, and drags nobody for good.
    """
    notice = gathered.manifest.notice if gathered.manifest else None
    slow = who_waits_least(gathered.shares, gathered.on_cpus)
    if not slow or notice is None or not notice.startswith(MOVING):
        return None
    if any(gathered.shares[rank].work in ("checkpoint", "stopped") for rank in slow):
        return None
    work = gathered.shares[slow[0]].work
    kind = {"dataloader": Kind.DATA_STARVED, "logging": Kind.LOG_FLOOD}.get(work or "", Kind.STRAGGLER)
    doing = WORDS.get(work or "", "at work of its own")
    return Finding(
        source="stack",
        kind=kind,
        confidence=Confidence.POSSIBLE,
        summary=f"{who(slow)} {verb(slow, 'is', 'are')} {doing} while the others wait, in most samples",
        suspects=slow,
        victims=tuple(r for r in range(gathered.world_size) if r not in slow),
        where=Where(site="host" if kind is Kind.STRAGGLER else None),
        evidence=tuple(cite_shares(rank, gathered.shares) for rank in slow[:3]),
    )


def records_alone(gathered: Gathered) -> Finding | None:
    """Step records and nothing else that speaks: who is behind, or whether the job may hang."""
    if not gathered.only_records:
        return None
    return left_open(gathered.foreign.open_spans) or standing(gathered.signals.steps, time.time())


def _first(gathered: Gathered, kinds: frozenset[Kind] | None = None) -> Finding | None:
    found = next((f for f in gathered.signals.findings if kinds is None or f.kind in kinds), None)
    if found is None:
        return None
    everybody = set(range(gathered.world_size)) - set(found.culprits) - set(found.suspects)
    return dataclasses.replace(found, victims=tuple(sorted(everybody)))


def _with_witnesses(found: Finding, gathered: Gathered) -> Finding:
    """What arrivals in the recorder and repeated stacks say of a rank that drags.

    Where they name another rank, confidence falls.
    """
    if found.kind not in (Kind.STRAGGLER, Kind.DATA_STARVED, Kind.LOG_FLOOD) or not found.culprits:
        return found
    return _with_arrivals(_with_shares(found, gathered), gathered)


def _with_shares(found: Finding, gathered: Gathered) -> Finding:
    """What the accused were sampled at while their peers waited; a rank that wants a core and has none."""
    cited = tuple(cite_shares(r, gathered.shares) for r in found.culprits[:2] if r in gathered.shares)
    slow = who_waits_least(gathered.shares, gathered.on_cpus)
    others = tuple(r for r in slow if r not in found.culprits)
    if others:
        because = f"sampled stacks: {who(others)} {verb(others, 'waits', 'wait')} least"
        found = dataclasses.replace(
            found,
            confidence=Confidence.POSSIBLE,
            ruled_out=(*found.ruled_out, RuledOut(found.kind, f"against this: {because}")),
        )
    if found.kind is Kind.STRAGGLER and all(_crowded_out(r, gathered) for r in found.culprits):
        found = dataclasses.replace(found, where=dataclasses.replace(found.where, site="host"))
    return dataclasses.replace(found, evidence=(*found.evidence, *cited))


def _crowded_out(rank: int, gathered: Gathered) -> bool:
    """Whether a rank's main thread is runnable far longer than it ran, by its own count of CPU time."""
    shares, steps = gathered.shares.get(rank), gathered.signals.steps
    if shares is None or round(shares.runnable * shares.samples) < LEAST_CAUGHT:
        return False
    if steps.windows is None or not steps.has("cpu_s", "step_time_s"):
        return False
    ran = steps.both("cpu_s")[rank].now / steps.both("step_time_s")[rank].now
    return shares.runnable > LEAST_RUNNABLE and shares.runnable > CROWDED * ran


def _with_arrivals(found: Finding, gathered: Gathered) -> Finding:
    late = next((f for f in gathered.flight.findings if f.kind is Kind.STRAGGLER and f.culprits), None)
    if late is None:
        return found
    agree = set(late.culprits) <= set(found.culprits)
    said = f"{who(late.culprits)} {verb(late.culprits, 'enters', 'enter')} collectives last: {late.summary}"
    cited = Citation("flight_recorder", said if agree else f"against this: {said}")
    confidence = found.confidence if agree else Confidence.POSSIBLE
    return dataclasses.replace(found, confidence=confidence, evidence=(*found.evidence, cited))
