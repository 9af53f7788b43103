"""A job that goes on, slower or wrong: what its step records say, with other witnesses."""

import dataclasses
import re
import time

from harness.diagnose.gathered import Gathered
from harness.diagnose.signals.spans import left_open
from harness.diagnose.signals.standing import standing
from harness.diagnose.signals.wording import verb, who
from harness.model.diagnosis import Citation
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

NUMBERS = frozenset((Kind.LOSS_NOT_FINITE, Kind.SILENT_CORRUPTION, Kind.DATA_CORRUPT))

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


def records_alone(gathered: Gathered) -> Finding | None:
    """Step records and nothing else that speaks: who is behind, or whether the job may hang."""
    if gathered.exits is not None or gathered.manifest is not None or gathered.flight.evidence.tables:
        return None
    return left_open(gathered.foreign.open_spans) or standing(gathered.signals.steps, time.time())


def _first(gathered: Gathered, kinds: frozenset[Kind] | None = None) -> Finding | None:
    found = next((f for f in gathered.signals.findings if kinds is None or f.kind in kinds), None)
    if found is None:
        return None
    everybody = set(range(gathered.world_size)) - set(found.culprits) - set(found.suspects)
    return dataclasses.replace(found, victims=tuple(sorted(everybody)))


def _with_witnesses(found: Finding, gathered: Gathered) -> Finding:
    """What the recorder's arrivals say of a rank that drags; if they name another, confidence falls."""
    if found.kind not in (Kind.STRAGGLER, Kind.DATA_STARVED) or not found.culprits:
        return found
    late = next((f for f in gathered.flight.findings if f.kind is Kind.STRAGGLER and f.culprits), None)
    if late is None:
        return found
    agree = set(late.culprits) <= set(found.culprits)
    said = f"{who(late.culprits)} {verb(late.culprits, 'enters', 'enter')} collectives last: {late.summary}"
    cited = Citation("flight_recorder", said if agree else f"against this: {said}")
    confidence = found.confidence if agree else Confidence.POSSIBLE
    return dataclasses.replace(found, confidence=confidence, evidence=(*found.evidence, cited))
