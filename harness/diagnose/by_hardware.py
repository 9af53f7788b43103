"""What cards, ports and kernels say, weighed against the rest.

A kernel's word on a card outranks everything on who went first. A counter that nobody saw grow may be old:
it is evidence beside another finding, and a finding of its own only where there is nothing else.
"""

import dataclasses

from harness.diagnose.gathered import Gathered
from harness.diagnose.hardware.room import ranks_text
from harness.diagnose.hardware.signs import FAULT, SLOW, Sign
from harness.diagnose.logs.failures import INFORMING_XIDS
from harness.model.diagnosis import RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

MAX_CITED = 3
_ON_THE_CARD = frozenset(
    (
        Kind.STRAGGLER,
        Kind.GPU_STALLED,
        Kind.RANK_EXITED,
        Kind.SOFTWARE_ERROR,
        Kind.DEVICE_ASSERT,
        Kind.DEVICE_OOM,
        Kind.SILENT_CORRUPTION,
        Kind.HARDWARE_FAULT,
        Kind.RANK_STALLED,
    )
)
"""Kinds beside which the state of the accused's card is worth a line."""

_ON_THE_NETWORK = frozenset((Kind.FABRIC_STALLED, Kind.COMM_SLOW, Kind.INIT_STUCK, Kind.INCONCLUSIVE))


def broken_hardware(gathered: Gathered) -> Finding | None:
    """A card that broke while the job did, on which known ranks compute."""
    if not _job_broke(gathered):
        return None
    faults = [s for s in gathered.hardware.of(FAULT) if s.fresh and s.ranks and not _only_informs(s)]
    return _fault(faults, gathered) if faults else None


def _only_informs(sign: Sign) -> bool:
    """An XID that says what was recovered, or will be at the next reset."""
    return any(f"XID {code}," in sign.says for code in INFORMING_XIDS)


def _job_broke(gathered: Gathered) -> bool:
    """Whether there is a job here, and it did not come to a good end."""
    if gathered.still_moving:
        return False
    if gathered.exits is not None:
        return not gathered.exits.all_finished
    return bool(gathered.flight.evidence.tables or gathered.stacks)


def hardware_alone(gathered: Gathered) -> Finding | None:
    """Nothing else explains it, and a card or port is broken or slow."""
    faults = gathered.hardware.of(FAULT)
    if faults:
        return _fault(list(faults), gathered)
    slow = gathered.hardware.of(SLOW)
    # What slows a job is not what stopped it.
    return _slow(list(slow), gathered) if slow and not _job_broke(gathered) else None


def _fault(faults: list[Sign], gathered: Gathered) -> Finding:
    first = faults[0]
    alike = [s for s in faults if s.ranks] or faults
    ranks = tuple(sorted({rank for sign in alike for rank in sign.ranks}))
    kernel = first.citation.source == "kernel"
    whole = bool(gathered.world_size) and len(ranks) == gathered.world_size
    summary = f"{first.says}{ranks_text(first)}"
    # What was recovered, or waits for the next reset, need not be what ended this job.
    doubtful = whole or (bool(gathered.exits) and all(_only_informs(s) for s in faults))
    sure = kernel and bool(first.ranks) and not doubtful
    more = len({s.says for s in faults}) - 1
    return Finding(
        source="gpu",
        kind=Kind.HARDWARE_FAULT,
        confidence=(Confidence.CERTAIN if sure else Confidence.POSSIBLE if doubtful else Confidence.LIKELY),
        summary=summary + (f"; {more} more such sign{'s' if more > 1 else ''}" if more else ""),
        culprits=() if doubtful else ranks,
        suspects=ranks if doubtful and not whole else (),
        victims=tuple(r for r in range(gathered.world_size) if whole or r not in ranks),
        where=Where(site=first.site, hosts=_hosts(faults)),
        evidence=tuple(s.citation for s in (*faults[:MAX_CITED], *gathered.hardware.of(SLOW)[:2])),
        chain=(first.says, *((f"-> rank {format_ranks(ranks)} computes there",) if ranks else ())),
    )


def _slow(slow: list[Sign], gathered: Gathered) -> Finding:
    """Cards or links that slow whoever runs there: whether anybody was slow, these files do not say."""
    first = slow[0]
    ranks = tuple(sorted({rank for sign in slow for rank in sign.ranks}))
    suspects = ranks if 2 * len(ranks) < max(gathered.world_size, 3) else ()
    return Finding(
        source="gpu",
        kind=Kind.STRAGGLER,
        confidence=Confidence.POSSIBLE,
        summary=f"{first.says}{ranks_text(first)}: whoever computes there is slow",
        suspects=suspects,
        victims=tuple(r for r in range(gathered.world_size) if r not in suspects),
        where=Where(site=first.site, hosts=_hosts(slow)),
        evidence=tuple(s.citation for s in slow[:MAX_CITED]),
        chain=(first.says,),
    )


def _hosts(signs: list[Sign]) -> tuple[str, ...]:
    return tuple(sorted({s.host for s in signs if s.host}))


def with_hardware(finding: Finding, gathered: Gathered) -> Finding:
    """The finding with what the accused's cards and the network say to it."""
    signs = gathered.hardware.signs
    if not signs or finding.source == "gpu":
        return finding
    accused = finding.culprits or finding.suspects
    if finding.kind in _ON_THE_CARD and accused:
        own = tuple(s for s in signs if set(s.ranks) & set(accused))
        finding = _on_the_card(finding, own, gathered) if own else finding
    if finding.kind in _ON_THE_NETWORK:
        links = tuple(s for s in signs if s.site == "link" and s.card is None)
        finding = _cited(finding, links)
    faults = gathered.hardware.of(FAULT)
    # A card of which nobody knows who computes there may be the very one: it is shown, and not ruled out.
    finding = _cited(finding, tuple(s for s in faults if not s.ranks)[:2])
    elsewhere = [s for s in faults if s.ranks and not set(s.ranks) & set(accused)]
    ruled_out = tuple(
        RuledOut(Kind.HARDWARE_FAULT, f"{s.says}{ranks_text(s)}: not where it broke") for s in elsewhere[:2]
    )
    return dataclasses.replace(finding, ruled_out=(*finding.ruled_out, *ruled_out))


def _on_the_card(finding: Finding, own: tuple[Sign, ...], gathered: Gathered) -> Finding:
    """A straggler's card that is held down, where most other cards are not, is why it is late."""
    finding = _cited(finding, own)
    accused = set(finding.culprits or finding.suspects)
    cause = next((s for s in own if s.weight in (SLOW, FAULT)), None)
    if finding.kind is not Kind.STRAGGLER or cause is None:
        return finding
    others = {r for s in gathered.hardware.of(SLOW) if s.site == cause.site for r in s.ranks} - accused
    if 2 * len(others) >= max(gathered.world_size - len(accused), 1):
        return finding
    return dataclasses.replace(
        finding,
        summary=f"{finding.summary}; {cause.says}",
        where=dataclasses.replace(
            finding.where, site=cause.site if cause.weight == SLOW else finding.where.site
        ),
        chain=(cause.says, *(f"-> {c}" if not c.startswith("->") else c for c in finding.chain)),
    )


def _cited(finding: Finding, signs: tuple[Sign, ...]) -> Finding:
    more = tuple(sign.citation for sign in signs[:MAX_CITED])
    return dataclasses.replace(finding, evidence=(*finding.evidence, *more))
