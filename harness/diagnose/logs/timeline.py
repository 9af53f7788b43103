"""One timeline over all files, on one clock where the clocks could be compared."""

from harness.diagnose.logs.event import Event
from harness.diagnose.logs.story import Story
from harness.diagnose.logs.wording import short
from harness.model.diagnosis import TimelineEntry
from harness.model.finding import Finding

MAX_ENTRIES = 40
PER_CLASS = 3
MAX_PRECISION_S = 120.0

_LABELS = {
    "watchdog_timeout": "times out",
    "dump_first": "signals others to dump",
    "dump_observed": "sees another's dump signal",
    "closing": "launcher: clean-up",
    "block_exit": "launcher's block",
    "step": "last step heard of",
    "taking_down": "watchdog aborts",
}
_ONCE = frozenset(("taking_down", "watchdog_ended", "terminate", "closing", "store_lost", "peer_closed"))
"""What everybody says alike: once is enough."""

_LEFT_OUT = frozenset(
    ("progress", "active", "communicator", "nccl_warn", "block", "traceback", "pasted", "dumping")
)


def timeline(story: Story, finding: Finding | None) -> tuple[TimelineEntry, ...]:
    """What happened in order of time, each with its line; of a class the first few and the cited ones."""
    cited = {(c.file, c.line) for c in finding.evidence} if finding else set()
    dated = sorted(
        ((at, event) for event in story.events if (at := _at(event, story)) is not None),
        key=lambda pair: (pair[0], pair[1].file, pair[1].line),
    )
    last_step = max((at for at, e in dated if e.what == "step"), default=None)
    counts: dict[str, int] = {}
    entries = _waits_begin(story)
    seen = set[tuple[str, int]]()
    for at, event in dated:
        if event.what in _LEFT_OUT or (event.what == "step" and at != last_step):
            continue
        counts[event.what] = counts.get(event.what, 0) + 1
        most = 1 if event.what in _ONCE else PER_CLASS
        place = (event.file, event.line)
        if place in seen or (counts[event.what] > most and place not in cited):
            continue
        seen.add(place)
        entries.append(TimelineEntry(at, _says(event), event.rank, event.file, event.line))
    return tuple(sorted(entries, key=lambda entry: entry.at)[:MAX_ENTRIES])


def _waits_begin(story: Story) -> list[TimelineEntry]:
    """When each stuck collective began: the first timeout minus how long it ran."""
    entries: list[TimelineEntry] = []
    for key in story.waits.stuck_groups():
        waits = [w for w in story.waits.of_group(key) if w.began is not None and not w.suspended]
        if not waits:
            continue
        first = min(waits, key=lambda w: w.began or 0.0)
        at = story.common_time(first.event)
        lasted = first.lasted_s
        if at is None or lasted is None:
            continue
        what = (
            f"{first.op or 'a collective'} seq {first.seq} begins to wait (its timeout minus {lasted:.0f} s)"
        )
        entries.append(TimelineEntry(at - lasted, what, first.rank, first.event.file, first.event.line))
    return entries


def _at(event: Event, story: Story) -> float | None:
    return story.common_time(event) if event.precision_s <= MAX_PRECISION_S else None


def _says(event: Event) -> str:
    label = _LABELS.get(event.what)
    return f"{label}: {short(event.text)}" if label else short(event.text)
