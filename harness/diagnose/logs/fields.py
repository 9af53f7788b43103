"""Ranks that loggers keep in a field: ``"rank": 3`` is global by custom only, unlike torch's own prefix."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Sequence

from harness.diagnose.logs.event import RankFrom
from harness.diagnose.logs.reader import FileLog, Seen, Speaker

_ROTATED = re.compile(r"(?:\.\d{1,4})?(?:\.(?:gz|bz2|xz))?$")
"""``train.jsonl.1`` goes on in ``train.jsonl``: one writer."""


def with_local_fields(logs: Sequence[FileLog]) -> Sequence[FileLog]:
    """The logs; where two machines or files have one rank in their fields, those are local ranks.

    A rank that the name of its file states as well stays global.
    """
    fields = [log for log in logs if log.rank_fields]
    places: dict[int, set[str]] = defaultdict(set)
    for log in fields:
        for speaker in log.speakers:
            if speaker.rank is not None and _by_field(speaker.rank_from, speaker.rank, log):
                places[speaker.rank].add(speaker.host or _ROTATED.sub("", log.file.name))
    if all(len(found) < 2 for found in places.values()):
        return logs
    return [_local(log) if log.rank_fields else log for log in logs]


def _by_field(source: RankFrom | None, rank: int | None, log: FileLog) -> bool:
    return source in (RankFrom.PREFIX, RankFrom.CONTEXT) and rank != log.file.rank


def _local(log: FileLog) -> FileLog:
    """A log whose fields state local ranks."""
    speakers: dict[Speaker, Seen] = {}
    for said, seen in log.speakers.items():
        speaker = said
        if _by_field(speaker.rank_from, speaker.rank, log):
            local = speaker.rank if speaker.local_rank is None else speaker.local_rank
            speaker = speaker._replace(rank=None, rank_from=None, local_rank=local)
        before = speakers.get(speaker, seen)
        lines = seen.lines if before is seen else seen.lines + before.lines
        speakers[speaker] = Seen(min(before.first, seen.first), max(before.last, seen.last), lines)
    events = [
        dataclasses.replace(
            event,
            rank=None,
            rank_from=None,
            local_rank=event.rank if event.local_rank is None else event.local_rank,
        )
        if _by_field(event.rank_from, event.rank, log)
        else event
        for event in log.events
    ]
    return dataclasses.replace(log, speakers=speakers, events=events)
