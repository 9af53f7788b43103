"""Everything under some paths that other people's frameworks recorded, step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.diagnose.signals.formats.attempts import merged
from harness.diagnose.signals.formats.builder import Piece
from harness.diagnose.signals.formats.deepspeed import DeepSpeed
from harness.diagnose.signals.formats.foreign import LAST_RANK, Foreign, OpenSpan, TimerRow
from harness.diagnose.signals.formats.lines import Candidates
from harness.diagnose.signals.formats.megatron import Megatron
from harness.diagnose.signals.formats.sources import UNREADABLE, LogSource, blocks, find_logs, reason
from harness.diagnose.signals.formats.torchtitan_events import EventReader
from harness.diagnose.signals.formats.torchtitan_lines import TorchtitanLines
from harness.diagnose.signals.formats.torchtitan_spans import SpanLog, span_logs

__all__ = ["Foreign", "OpenSpan", "TimerRow", "read_foreign"]


@dataclass
class _Reading:
    complaints: list[str]
    pieces: list[Piece] = field(default_factory=list)
    timers: list[TimerRow] = field(default_factory=list)
    span_logs: list[SpanLog] = field(default_factory=list)
    open_in_text: dict[int, OpenSpan] = field(default_factory=dict)
    megatron: list[Megatron] = field(default_factory=list)


def read_foreign(paths: Sequence[Path]) -> Foreign:
    """Read torchtitan's, Megatron's and DeepSpeed's records from all files under `paths`.

    Never raises for what is in them: damaged lines are passed over, and what a file lacks is complained of.
    Times are unix seconds; a date without a zone is taken as UTC.
    """
    sources, complaints = find_logs(paths)
    reading = _Reading(complaints)
    for source in sources:
        if source.kind == "spans":
            _read_spans(source, reading)
        else:
            _read_text(source, reading)
    world_size = _world_size(reading)
    pieces = [*_with_last_rank(reading.pieces, reading, world_size), *_main_program(reading)]
    spans = dict(reading.open_in_text)
    spans.update(_last_open(reading.span_logs))
    return Foreign(merged(pieces), tuple(reading.timers), tuple(complaints), world_size, spans)


def _read_spans(source: LogSource, reading: _Reading) -> None:
    reader = EventReader()
    try:
        for number, block in blocks(source):
            reader.add(number, block)
    except UNREADABLE as error:
        reading.complaints.append(f"{source.name}: {reason(error)}")
    events = reader.events()
    if events.damaged:
        lines = "line is" if events.damaged == 1 else "lines are"
        reading.complaints.append(f"{source.name}: {events.damaged} {lines} damaged")
    reading.span_logs += span_logs(events, source)


def _read_text(source: LogSource, reading: _Reading) -> None:
    torchtitan, megatron, deepspeed = TorchtitanLines(source), Megatron(source), DeepSpeed(source)
    lines = Candidates(blocks(source))
    try:
        for line in lines:
            torchtitan.feed(line)
            megatron.feed(line)
            deepspeed.feed(line)
            lines.follow = megatron.follow
    except UNREADABLE as error:
        reading.complaints.append(f"{source.name}: {reason(error)}")
    reading.pieces += [*torchtitan.pieces(), *megatron.finish(), *deepspeed.finish()]
    reading.timers += sorted(megatron.timers, key=lambda row: row.line)
    reading.open_in_text.update(torchtitan.open_spans())
    reading.open_in_text.update(megatron.open_spans())
    reading.megatron.append(megatron)


def _world_size(reading: _Reading) -> int | None:
    """As stated; the last statement wins over another."""
    said = {m.source.name: m.world_size for m in reading.megatron if m.world_size}
    if len(set(said.values())) > 1:
        sizes = ", ".join(f"{size} in {name}" for name, size in said.items())
        reading.complaints.append(f"{next(iter(said))}: another world size is stated elsewhere: {sizes}")
    return next(reversed(said.values()), None)


def _with_last_rank(pieces: list[Piece], reading: _Reading, world_size: int | None) -> Iterator[Piece]:
    """Megatron's iteration line is printed by the last rank, which does not say its number."""
    local = {m.source.name: m.local_rank for m in reading.megatron}
    noted = set[str]()
    for piece in pieces:
        columns = piece.columns
        if columns.rank != LAST_RANK:
            yield piece
            continue
        rank = local[columns.file] or 0
        if world_size:
            rank = world_size - 1
        elif columns.file not in noted:
            noted.add(columns.file)
            reading.complaints.append(
                f"{columns.file}: nothing states the global rank that printed the iterations; taken as {rank}"
            )
        yield replace(piece, columns=replace(columns, rank=rank))


def _main_program(reading: _Reading) -> Iterator[Piece]:
    """Of programs that number their ranks each from 0 (trainer, generator), the one that trains."""
    records: dict[str, int] = {}
    for log in reading.span_logs:
        count = sum(len(piece.columns) for piece in log.pieces)
        if count:
            records[log.program] = records.get(log.program, 0) + count
    if len(records) > 1:
        main = max(records, key=lambda name: ("train" in name, records[name], name))
        others = ", ".join(sorted(name or "a log without a source" for name in records.keys() - {main}))
        reading.complaints.append(f"structured logs: ranks of {others} are not those of {main}, left out")
        reading.span_logs = [log for log in reading.span_logs if log.program == main]
    for log in reading.span_logs:
        yield from log.pieces


def _last_open(logs: list[SpanLog]) -> dict[int, OpenSpan]:
    """What each rank was in when the last of its logs ends; nothing if it had left everything."""
    last: dict[int, SpanLog] = {}
    for log in logs:
        if log.rank not in last or not log.end < last[log.rank].end:
            last[log.rank] = log
    return {rank: log.open_span for rank, log in sorted(last.items()) if log.open_span is not None}
