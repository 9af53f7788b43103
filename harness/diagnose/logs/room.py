"""Logs to one finding, with all that a report says besides: job, ranks' states, timeline, tiers."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.diagnose.logs.census import take_census
from harness.diagnose.logs.event import Event, RankFrom
from harness.diagnose.logs.fields import with_local_fields
from harness.diagnose.logs.heads import JobHead, read_heads
from harness.diagnose.logs.read import Reading, Texts, reading
from harness.diagnose.logs.reader import FileLog
from harness.diagnose.logs.reread import Reread
from harness.diagnose.logs.rules import decide_by_logs
from harness.diagnose.logs.silence import heard_after_all
from harness.diagnose.logs.storage import with_storage
from harness.diagnose.logs.story import Story, tell
from harness.diagnose.logs.tables import rank_states, tier_counts
from harness.diagnose.logs.timeline import timeline
from harness.diagnose.logs.wording import who
from harness.diagnose.signals.formats.foreign import Foreign
from harness.diagnose.texts.pool import OnProgress
from harness.model.diagnosis import RankState, Revision, TierCount, TimelineEntry
from harness.model.finding import Finding

if TYPE_CHECKING:
    from harness.diagnose.logs.aistore.model import StorageReport

HEAD_LINES, LEAST_HEAD_LINES = 8000, 40
"""So many lines of all heads are read for what the job says of itself, and so many of each at least."""

APART_S = 1.0
MAX_CLOCKS = 12

STORAGE_LINES = ("ais_loader", "retry", "connection")


@dataclass(frozen=True)
class LogsResult:
    """What logs say. `finding` is None where the text does not decide, or there is none."""

    finding: Finding | None = None
    story: Story | None = None
    head: JobHead = field(default_factory=JobHead)
    foreign: Foreign = field(default_factory=Foreign)
    states: tuple[RankState, ...] = ()
    tiers: tuple[TierCount, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    storage: "StorageReport | None" = None
    symptoms: tuple[Event, ...] = ()
    revised: tuple[Revision, ...] = ()
    complaints: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    key_files: tuple[str, ...] = ()
    clocks: tuple[str, ...] = ()

    @property
    def speaks(self) -> bool:
        """Whether there is any event beyond steps that a diagnosis may rest on."""
        return self.story is not None and any(e.what != "step" for e in self.story.events)

    @property
    def is_log(self) -> bool:
        """Whether anything was read that is a log of a job: a rank that speaks, an event, a head."""
        if self.story is None:
            return False
        dated = any(log.stamps for log in self.story.files.values())
        return dated or bool(self.story.events or self.head.frameworks or self.storage)


def analyse_logs(
    paths: Sequence[Path], world_size: int | None, on_progress: OnProgress = lambda done, total: None
) -> LogsResult:
    """Read and weigh all logs under `paths`. `world_size` counts where the logs state none."""
    with reading(paths) as logs:
        return weigh_logs(logs, world_size, on_progress)


def weigh_logs(
    logs: Reading, world_size: int | None, on_progress: OnProgress = lambda done, total: None
) -> LogsResult:
    """Weigh logs that are being read. `world_size` counts where they state none."""
    texts = logs.texts(on_progress)
    if not texts.logs and not texts.daemons:
        return LogsResult(foreign=texts.foreign, complaints=texts.complaints)
    return _weigh(texts, world_size)


def _weigh(texts: Texts, world_size: int | None) -> LogsResult:
    logs = with_local_fields(texts.logs)
    share = max(HEAD_LINES // max(len(logs), 1), LEAST_HEAD_LINES)
    head = read_heads({log.file.name: log.head[:share] for log in logs})
    known = None if head.world_is_least else head.world_size.value
    stated = known or texts.foreign.world_size or world_size
    beyond = max((r for log in logs for r in _stated_ranks(log)), default=-1)
    doubts: tuple[str, ...] = ()
    if stated == world_size and world_size is not None and beyond >= world_size:
        doubts = (
            f"rank {beyond} speaks in these logs: --world-size {world_size} is too small a world "
            f"size and ignored",
        )
        stated = None
    census = take_census(
        logs,
        stated,
        {rank: said.value for rank, said in head.hosts.items()},
        {rank: said.value for rank, said in head.pci.items()},
    )
    heard_after_all(census, logs)
    layout = {axis: fact.value for axis, fact in head.layout.items() if fact.value}
    story = tell(logs, census, texts.mtimes, layout)
    decided = decide_by_logs(story)
    finding, revised = decided.finding, first_reading(story, decided.finding)
    storage = _storage(texts, story)
    if storage is not None:
        finding = with_storage(finding, storage, story)
    reread = Reread({log.file.name: log.file for log in logs})
    if finding is not None:
        finding = dataclasses.replace(finding, evidence=reread.confirmed(finding.evidence))
    return LogsResult(
        finding=finding,
        story=story,
        head=head,
        foreign=texts.foreign,
        states=rank_states(story),
        tiers=tier_counts(story, decided.found),
        timeline=timeline(story, finding),
        storage=storage,
        symptoms=tuple(decided.found.symptoms),
        revised=revised,
        complaints=(*doubts, *texts.complaints, *reread.complaints),
        missing=_missing(story),
        key_files=_key_files(finding, logs),
        clocks=_clocks(story),
    )


def _stated_ranks(log: FileLog) -> list[int]:
    """Ranks whose own prefix stands in a log."""
    return [s.rank for s in log.speakers if s.rank is not None and s.rank_from is RankFrom.PREFIX]


def first_reading(story: Story, finding: Finding | None) -> tuple[Revision, ...]:
    """What the loudest line says, where the answer is another one: said openly."""
    signal = story.waits.first_signal
    if finding is None or signal is None or signal.rank is None or not signal.strong:
        return ()
    accused = finding.culprits or finding.suspects
    if signal.rank in accused or len(story.waits.waiting) < 2:
        return ()
    now = f"rank {', '.join(map(str, accused))}" if accused else "no rank"
    return (
        Revision(
            was=f"rank {signal.rank}, the first to signal a timeout ({signal.place})",
            now=f"{now}: {finding.kind.value}",
            because="the first to report a timeout is one of those who wait",
        ),
    )


def _storage(texts: Texts, story: Story) -> "StorageReport | None":
    if not texts.daemons:
        return None
    # Loaded where there are logs of AIStore.
    from harness.diagnose.logs.aistore.assess import assess
    from harness.diagnose.logs.aistore.chain import loader_link
    from harness.diagnose.logs.aistore.read import read_daemons

    death = [
        e.at for e in story.of("cancelled", "block_exit", "exit", "watchdog_timeout") if e.at is not None
    ]
    trouble = [e.at for e in story.of(*STORAGE_LINES, "storage") if e.at is not None]
    window = (min(trouble) - 600.0, max(trouble) + 60.0) if trouble else None
    links = [loader_link(e.text, e.file, e.line, e.at) for e in story.of("ais_loader", "exception")]
    workers = tuple(link for link in links if link is not None)
    return assess(read_daemons(texts.daemons), window, max(death, default=None), workers[:2])


def _missing(story: Story) -> tuple[str, ...]:
    silent = story.census.silent
    found: list[str] = []
    if silent and len(silent) < (story.world_size or 0):
        one = len(silent) == 1
        has, where = ("has", "the files of its node") if one else ("have", "the files of their nodes")
        found.append(f"{who(sorted(silent))} {has} no log: fetch {where}")
    dropped = sum(e.dropped for e in story.events)
    if dropped:
        found.append(
            f"{dropped} lines of other ranks were left out by Ray's de-duplication: RAY_DEDUP_LOGS=0 "
            f"keeps them"
        )
    return tuple(found)


def _clocks(story: Story) -> tuple[str, ...]:
    """Clocks that differ by more than a second, and those that cannot be compared at all."""
    offsets = story.alignment.offsets
    apart = {name for name, o in offsets.items() if abs(o.offset_s) >= APART_S or o.contradiction_s}
    notes = [
        note
        for note in story.alignment.notes
        if (name := note.split(" ", 1)[0]) in apart or name not in offsets
    ]
    return tuple(notes[:MAX_CLOCKS]) if len(story.files) > 1 else ()


def _key_files(finding: Finding | None, logs: Sequence[FileLog]) -> tuple[str, ...]:
    cited = [c.file for c in finding.evidence if c.file] if finding else []
    loud = sorted(logs, key=lambda log: -sum(e.tier in (1, 2) for e in log.events))
    return tuple(dict.fromkeys((*cited, *(log.file.name for log in loud[:3]))))
