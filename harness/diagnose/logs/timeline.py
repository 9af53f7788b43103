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
_LEFT_OUT = frozenset(
    ("progress", "active", "communicator", "nccl_warn", "block", "traceback", "pasted", "dumping")
)


def timeline(story: Story, finding: Finding | None) -> tuple[TimelineEntry, ...]:
    """What happened in order of time, each with its line; of a class only the first few and the cited ones."""
    cited = {(c.file, c.line) for c in finding.evidence} if finding else set()
    dated = sorted(
        ((at, event) for event in story.events if (at := _at(event, story)) is not None),
        key=lambda pair: (pair[0], pair[1].file, pair[1].line),
    )
    last_step = max((at for at, e in dated if e.what == "step"), default=None)
    counts: dict[str, int] = {}
    entries: list[TimelineEntry] = []
    for at, event in dated:
        if event.what in _LEFT_OUT or (event.what == "step" and at != last_step):
            continue
        counts[event.what] = counts.get(event.what, 0) + 1
        if counts[event.what] > PER_CLASS and (event.file, event.line) not in cited:
            continue
        entries.append(TimelineEntry(at, _says(event), event.rank, event.file, event.line))
    return tuple(entries[:MAX_ENTRIES])


def _at(event: Event, story: Story) -> float | None:
    return story.common_time(event) if event.precision_s <= MAX_PRECISION_S else None


def _says(event: Event) -> str:
    label = _LABELS.get(event.what)
    return f"{label}: {short(event.text)}" if label else short(event.text)
