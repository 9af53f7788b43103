"""Explicit reports: the debug wrapper, the desync report, monitored barriers (rule 8)."""

from collections import Counter

from harness.diagnose.logs.detail import detail_finding
from harness.diagnose.logs.event import Event
from harness.diagnose.logs.events import LogEvent
from harness.diagnose.logs.story import Story
from harness.diagnose.logs.wording import cite, who
from harness.model.diagnosis import Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind


def compared_by_torch(story: Story) -> Finding | None:
    """What TORCH_DISTRIBUTED_DEBUG=DETAIL reports, by majority within one sequence number."""
    told = [
        LogEvent(e.rank, "detail", e.file, e.line, e.text)
        for e in story.of("detail")
        if e.rank is not None and e.strong
    ]
    return detail_finding(told, story.census.size) if told else None


def desync_report(story: Story) -> Finding | None:
    """Who did not join a collective; if all joined and none finished, nobody is at fault."""
    absent = story.of("desync_absent")
    joined = story.of("desync_joined")
    if not absent and not joined:
        return None
    missing = sorted({r for e in absent for r in e.named})
    present = sorted({r for e in joined for r in e.named})
    seq = next((e.numbers["missed"] for e in absent), next((e.numbers["seq"] for e in joined), None))
    op = next((e.words["op"] for e in story.of("desync_at")), None)
    if not missing:
        return None
    # The report's ranks count inside its group: only where they cover all ranks are they global.
    covers = story.world_size is not None and set(missing) | set(present) >= set(range(story.world_size))
    global_ = covers or not any(e.group is not None and not e.group.is_default for e in story.events)
    few = 2 * len(missing) < len(missing) + len(present)
    sure = covers and few
    summary = (
        f"{who(missing)} did not join {op or 'the collective'} #{seq}, in which "
        f"{who(present) if present else 'others'} "
        f"wait"
    )
    return Finding(
        source="log",
        kind=Kind.RANK_STALLED,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=f"{summary} (torch's desync report)",
        culprits=tuple(missing) if sure else (),
        suspects=tuple(missing) if global_ and not sure else (),
        victims=story.others(missing) if global_ else (),
        where=Where(seq=seq, stuck_seq=seq, op=op.lower() if op else None),
        evidence=tuple(cite(e) for e in (*absent[:2], *joined[:1])),
        chain=(summary, "-> the others time out"),
    )


def monitored_barrier(story: Story) -> Finding | None:
    """``Ranks X failed to pass monitoredBarrier`` names X; the earliest barrier counts."""
    missed = story.of("barrier_missed")
    if not missed:
        return None
    first = missed[0]
    for event in missed[1:]:
        if story.before(event, first) is True:
            first = event
    # One report names a rank, a later line all of them; ranks of one barrier come together.
    together = [e for e in missed if story.before(first, e) is not True or _near(first, e, story)]
    named = Counter(r for e in together for r in e.named)
    ranks = tuple(sorted(named))
    if any(
        e.rank not in (0, None)
        for e in together
        if e.what == "barrier_missed" and len(e.named) > 0 and _by_root(e)
    ):
        # Rank 0 of a smaller group reports, and counts inside it.
        return None
    if not ranks or (story.world_size and max(ranks) >= story.world_size):
        return None
    sure = 2 * len(ranks) < max(story.census.size, 3)
    own = [e for e in story.of("exception") if e.rank in ranks]
    summary = f"{who(ranks)} did not come to a monitored barrier in which the others waited"
    return Finding(
        source="log",
        kind=Kind.RANK_STALLED,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=summary,
        culprits=ranks if sure else (),
        suspects=() if sure else ranks,
        victims=story.others(ranks),
        where=Where(op="barrier"),
        evidence=tuple(cite(e) for e in (*together[:2], *own[:1])),
        chain=(summary, "-> the others give up"),
    )


def _by_root(event: Event) -> bool:
    """Whether the root of a barrier reports; any other member only names whom it waited for."""
    return "[Rank 0]" in event.text


def _near(first: Event, other: Event, story: Story) -> bool:
    seconds = story.seconds_between(first, other)
    return seconds is not None and seconds < 2.0
