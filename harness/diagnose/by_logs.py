"""What logs say, weighed against dumps, stacks, launcher and step records.

Who died first, and of what, logs, launchers and kernels know better than dumps; which collective, and who
left it out, dumps know better than logs. Where they contradict each other, that is said, and confidence
falls.
"""

import dataclasses
import re

from harness.diagnose.gathered import Gathered
from harness.diagnose.logs.wording import cite, short
from harness.diagnose.stalls import cite_stack, is_communicating
from harness.model.diagnosis import Citation, Revision, RuledOut
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

LAUNCHERS_DO_NOT_KNOW = frozenset((Kind.HARDWARE_FAULT, Kind.NODE_LOST, Kind.DEVICE_OOM, Kind.DEVICE_ASSERT))
"""Causes of which exit codes and last words of ranks say nothing, where a launcher's record is at hand."""

LOUD_FACTOR, LOUD_BYTES = 10, 1 << 20
MAX_SYMPTOMS = 4
WHO_WENT_FIRST = frozenset(
    (
        Kind.HARDWARE_FAULT,
        Kind.NODE_LOST,
        Kind.HOST_OOM,
        Kind.DEVICE_OOM,
        Kind.DEVICE_ASSERT,
        Kind.STORAGE_FAILURE,
        Kind.CHECKPOINT_FAILED,
        Kind.DATA_CORRUPT,
        Kind.LOSS_NOT_FINITE,
        Kind.SOFTWARE_ERROR,
        Kind.RANK_EXITED,
        Kind.EXTERNAL_STOP,
        Kind.RESTART_LOOP,
        Kind.TEARDOWN_HANG,
    )
)
"""Kinds on which logs outrank the Flight Recorder (DIAGNOSIS, "Decide")."""


def death_by_logs(gathered: Gathered) -> Finding | None:
    """An end of which the logs know the cause and the rank, or that nobody is at fault."""
    finding = gathered.text.finding
    if finding is None or finding.kind not in WHO_WENT_FIRST:
        return None
    if _ours(gathered) and finding.kind not in LAUNCHERS_DO_NOT_KNOW:
        return None
    if not finding.culprits and _dumps_convict(gathered):
        return None
    return finding


def symptoms(gathered: Gathered) -> tuple[RuledOut, ...]:
    """Deaths and errors that only follow from others, said as such: one of each reason."""
    found: dict[str, RuledOut] = {}
    for event in gathered.text.symptoms:
        reason = (event.symptom_of or "").split(" at ")[0].split(": ")[0]
        kind = Kind.SOFTWARE_ERROR if event.what == "exception" else Kind.RANK_EXITED
        whose = f"rank {event.rank}: " if event.rank is not None else ""
        said = f"{whose}{short(event.text)} ({event.place}) is a symptom: {event.symptom_of}"
        found.setdefault(reason, RuledOut(kind, said))
    return tuple(found.values())[:MAX_SYMPTOMS]


def hang_by_logs(gathered: Gathered) -> Finding | None:
    """Who is behind, as watchdogs and reports in the logs say."""
    finding = gathered.text.finding
    if finding is None or finding.kind in (Kind.HEALTHY, Kind.INCONCLUSIVE):
        return None
    # How ranks ended, a launcher's record says better.
    return None if _ours(gathered) and finding.kind in WHO_WENT_FIRST else finding


def _ours(gathered: Gathered) -> bool:
    """Whether a launcher's record, or the harness that ran the job, says how it ended."""
    manifest = gathered.manifest
    return gathered.exits is not None or (manifest is not None and manifest.launcher != "collected")


def healthy_by_logs(gathered: Gathered) -> Finding | None:
    """A good end, if step records do not speak against it: without them nobody knows how fast it was."""
    finding = gathered.text.finding
    if finding is None or finding.kind is not Kind.HEALTHY:
        return None
    story = gathered.text.story
    timed = any(e.at is not None and e.precision_s <= 1.0 for e in story.of("step")) if story else False
    loud = _loud(gathered)
    if (gathered.foreign.columns or timed) and not loud:
        return finding
    but = (
        f"{loud} wrote far more than the others"
        if loud
        else "how fast and how right it was, these logs do not say"
    )
    return dataclasses.replace(
        finding,
        kind=Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary=f"{finding.summary}; {but}",
    )


def _loud(gathered: Gathered) -> str:
    """A rank whose files are far larger than its sisters'."""
    story = gathered.text.story
    sizes: dict[int, int] = {}
    for log in story.files.values() if story else ():
        rank = log.file.rank if log.file.rank is not None else log.file.local_rank
        if rank is not None:
            sizes[rank] = sizes.get(rank, 0) + log.file.size_bytes
    if not sizes or (len(sizes) > 1 and sorted(sizes.values())[-2] * LOUD_FACTOR > max(sizes.values())):
        return ""
    rank, size = max(sizes.items(), key=lambda item: item[1])
    return f"rank {rank}" if size > LOUD_BYTES else ""


def nothing_in_logs(gathered: Gathered) -> Finding | None:
    """Logs that were read and say nothing of a cause: what they do show, and what to collect."""
    text = gathered.text
    if not text.is_log or text.story is None or not gathered.only_records:
        return None
    if text.finding is not None and text.finding.kind is Kind.INCONCLUSIVE:
        return text.finding
    if gathered.progress and not text.speaks:
        return None
    story = text.story
    waiting = sorted(story.waits.waiting)
    parts = (
        [f"nothing in these {len(story.files)} logs says who or what"]
        if len(story.files) > 1
        else ["nothing in this log says who or what"]
    )
    if waiting:
        known = f" of {story.world_size}" if story.world_size else ""
        parts.append(f"ranks {format_ranks(waiting)}{known} timed out")
        if not story.world_size:
            parts.append("the world size is not stated, so nobody can be missed (--world-size N)")
    elif story.waits.weak:
        parts.append("timeouts name ranks inside groups only")
    return Finding(
        source="log",
        kind=Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary="; ".join(parts),
        evidence=_loudest(gathered),
    )


def _loudest(gathered: Gathered) -> tuple[Citation, ...]:
    story = gathered.text.story
    events = [e for e in story.events if e.tier in (1, 2)] if story else []
    once = {_DIGITS.sub("#", e.text[:80]): e for e in reversed(events)}
    return tuple(cite(e) for e in sorted(once.values(), key=lambda e: (e.tier, e.file, e.line))[:4])


_DIGITS = re.compile(r"\d+")


def weighed_with_logs(finding: Finding, gathered: Gathered) -> tuple[Finding, tuple[Revision, ...]]:
    """The finding of other evidence with what the logs say to it, and what that changed."""
    said = gathered.text.finding
    if said is None or finding is said or finding.source == "log":
        return finding, ()
    mine, theirs = set(finding.culprits), set(said.culprits)
    if theirs and not mine and theirs <= set(finding.suspects):
        kind = said.kind if said.kind in WHO_WENT_FIRST else finding.kind
        convicted = dataclasses.replace(
            finding,
            kind=kind,
            confidence=Confidence.LIKELY,
            culprits=said.culprits,
            suspects=(),
            victims=said.victims,
            summary=f"{said.summary}; {finding.summary}",
            where=dataclasses.replace(finding.where, site=finding.where.site or said.where.site),
            evidence=(*said.evidence[:3], *finding.evidence),
            chain=said.chain or finding.chain,
        )
        was = f"suspects: ranks {format_ranks(finding.suspects)}"
        return convicted, (
            Revision(was, f"rank {format_ranks(said.culprits)}", f"the logs tell them apart: {said.summary}"),
        )
    if theirs & mine:
        known = {(c.file, c.line) for c in finding.evidence}
        more = tuple(c for c in said.evidence[:2] if (c.file, c.line) not in known)
        return dataclasses.replace(finding, evidence=(*finding.evidence, *more)), ()
    if theirs and mine:
        against = f"against this: the logs name rank {format_ranks(said.culprits)}: {said.summary}"
        lowered = _lowered(finding.confidence)
        return (
            dataclasses.replace(
                finding,
                confidence=lowered,
                ruled_out=(*finding.ruled_out, RuledOut(said.kind, against)),
                evidence=(*finding.evidence, *said.evidence[:2]),
            ),
            (
                Revision(
                    f"logs alone: {said.summary}",
                    finding.summary,
                    f"{finding.source.replace('_', ' ')} evidence decides on this",
                ),
            ),
        )
    return finding, ()


def against_logs(finding: Finding, gathered: Gathered) -> Finding:
    """A finding of the logs with what dumps and stacks say against it."""
    return _against_stacks(_against_dumps(finding, gathered), gathered)


def _against_stacks(finding: Finding, gathered: Gathered) -> Finding:
    """Who is said to have died was sampled alive in a collective, as its peers are."""
    if finding.kind not in _DIED:
        return finding
    alive = tuple(r for r in finding.culprits if is_communicating(r, gathered))
    if not alive:
        return finding
    because = f"against this: rank {format_ranks(alive)} was sampled alive in a collective"
    return dataclasses.replace(
        finding,
        confidence=_lowered(finding.confidence),
        ruled_out=(*finding.ruled_out, RuledOut(finding.kind, because)),
        evidence=(
            *finding.evidence,
            *(cite_stack(gathered, r, "sampled in a collective") for r in alive[:2]),
        ),
    )


_DIED = frozenset(
    (
        Kind.HOST_OOM,
        Kind.DEVICE_OOM,
        Kind.DEVICE_ASSERT,
        Kind.SOFTWARE_ERROR,
        Kind.RANK_EXITED,
        Kind.NODE_LOST,
    )
)


def _lowered(confidence: Confidence) -> Confidence:
    return Confidence.LIKELY if confidence is Confidence.CERTAIN else Confidence.POSSIBLE


def _against_dumps(finding: Finding, gathered: Gathered) -> Finding:
    convicting = [f for f in gathered.flight.findings if f.culprits]
    if not convicting or not finding.culprits or set(convicting[0].culprits) & set(finding.culprits):
        return finding
    other = convicting[0]
    lowered = _lowered(finding.confidence)
    return dataclasses.replace(
        finding,
        confidence=lowered,
        ruled_out=(
            *finding.ruled_out,
            RuledOut(
                other.kind,
                f"against this: the dumps name rank {format_ranks(other.culprits)}: {other.summary}",
            ),
        ),
        evidence=(*finding.evidence, *other.evidence[:1]),
    )


def _dumps_convict(gathered: Gathered) -> bool:
    return any(f.culprits for f in gathered.flight.findings)
