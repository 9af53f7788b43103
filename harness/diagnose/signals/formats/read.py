"""Everything under some paths that other people's frameworks recorded, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from harness.diagnose.signals.formats.attempts import merged
from harness.diagnose.signals.formats.builder import Piece
from harness.diagnose.signals.formats.file_records import FileRecords
from harness.diagnose.signals.formats.foreign import LAST_RANK, Foreign, OpenSpan, TimerRow
from harness.diagnose.signals.formats.needles import PATTERNS, STEP_RECORD
from harness.diagnose.texts.blocks import Blocks
from harness.diagnose.texts.files import TextFile, find_texts
from harness.diagnose.texts.lines import Line
from harness.diagnose.texts.pool import each_file
from harness.diagnose.texts.scan import Scanner

if TYPE_CHECKING:
    from harness.diagnose.signals.formats.readers import AllReaders
    from harness.diagnose.signals.formats.torchtitan_spans import SpanLog

__all__ = [
    "FileReaders",
    "FileRecords",
    "Foreign",
    "OpenSpan",
    "TimerRow",
    "assemble",
    "read_foreign",
    "read_spans",
]

SPAN_BLOCK_BYTES = 8 << 20
"""JSON lines are read faster in larger blocks."""


class FileReaders:
    """The readers of all formats over one text file. Lines without STEP_RECORD count only in between."""

    def __init__(self, file: TextFile) -> None:
        self.file = file
        self._all: AllReaders | None = None

    @property
    def follow(self) -> bool:
        """Whether the next line is wanted, whatever is in it."""
        return self._all is not None and self._all.follow

    def feed(self, line: Line) -> None:
        """Look at one line; lines come in order."""
        if STEP_RECORD in line.tags or self.follow:
            if self._all is None:
                # Loaded at the first record: most logs have none.
                from harness.diagnose.signals.formats.readers import AllReaders

                self._all = AllReaders(self.file)
            self._all.feed(line)

    def finish(self) -> FileRecords:
        """All that the file said, once it has been read."""
        return self._all.finish() if self._all is not None else FileRecords(self.file.name)


def read_foreign(paths: Sequence[Path]) -> Foreign:
    """Read torchtitan's, Megatron's and DeepSpeed's records from all files under `paths`.

    Never raises for what is in them: damaged lines are passed over, and what a file lacks is complained of.
    Times are unix seconds; a date without a zone is taken as UTC.
    """
    with TemporaryDirectory(prefix="drill-texts-") as scratch:
        files, complaints = find_texts(paths, Path(scratch))
        scanner = Scanner(PATTERNS)
        texts = [file for file in files if file.kind == "text"]
        read = dict(zip(texts, each_file(texts, lambda file: _read_text(file, scanner), lost), strict=True))
        return assemble([read[file] if file in read else read_spans(file) for file in files], complaints)


def lost(file: TextFile, why: str) -> FileRecords:
    """The records of a file that could not be read."""
    return FileRecords(file.name, complaints=(f"{file.name}: {why}",))


def read_spans(file: TextFile) -> FileRecords:
    """Read a file of kind ``spans``. Polars has threads of its own: not for a forked process."""
    # They need polars, which takes a quarter of a second to import: only where there are spans.
    from harness.diagnose.signals.formats.torchtitan_events import EventReader
    from harness.diagnose.signals.formats.torchtitan_spans import span_logs

    reader = EventReader()
    number = 1
    blocks = Blocks(file.path, SPAN_BLOCK_BYTES)
    for block in blocks:
        data = bytes(memoryview(block.data)[: block.end])
        reader.add(number, data)
        number += data.count(b"\n")
    events = reader.events()
    complaints = list(blocks.complaints)
    if events.damaged:
        complaints.append(f"{events.damaged} {'line is' if events.damaged == 1 else 'lines are'} damaged")
    return FileRecords(
        file.name,
        span_logs=tuple(span_logs(events, file)),
        complaints=tuple(f"{file.name}: {why}" for why in complaints),
    )


def assemble(records: Sequence[FileRecords], complaints: Sequence[str]) -> Foreign:
    """Put together what all files said, in their order; `complaints` of finding them come first."""
    said = [*complaints, *(why for one in records for why in one.complaints)]
    world_size = _world_size(records, said)
    ranked = [*_with_last_rank(records, world_size, said)]
    logs = _main_program([log for one in records for log in one.span_logs], said)
    spans = {rank: span for one in records for rank, span in one.open_spans}
    spans.update(_last_open(logs))
    return Foreign(
        merged([*ranked, *(piece for log in logs for piece in log.pieces)]),
        tuple(row for one in records for row in one.timers),
        tuple(said),
        world_size,
        spans,
    )


def _read_text(file: TextFile, scanner: Scanner) -> FileRecords:
    readers, lines = FileReaders(file), scanner.lines(file)
    for line in lines:
        readers.feed(line)
        lines.follow = readers.follow
    return replace(readers.finish(), complaints=tuple(f"{file.name}: {why}" for why in lines.complaints))


def _world_size(records: Sequence[FileRecords], complaints: list[str]) -> int | None:
    """As stated; the last statement wins over another."""
    said = {one.file: one.world_size for one in records if one.world_size}
    if len(set(said.values())) > 1:
        sizes = ", ".join(f"{size} in {name}" for name, size in said.items())
        complaints.append(f"{next(iter(said))}: another world size is stated elsewhere: {sizes}")
    return next(reversed(said.values()), None)


def _with_last_rank(
    records: Sequence[FileRecords], world_size: int | None, complaints: list[str]
) -> Iterator[Piece]:
    """Megatron's iteration line is printed by the last rank, which does not say its number."""
    noted = set[str]()
    for one in records:
        for piece in one.pieces:
            columns = piece.columns
            if columns.rank != LAST_RANK:
                yield piece
                continue
            rank = one.local_rank or 0
            if world_size:
                rank = world_size - 1
            elif one.file not in noted:
                noted.add(one.file)
                complaints.append(
                    f"{one.file}: nothing states the global rank that printed the iterations; taken as {rank}"
                )
            yield replace(piece, columns=replace(columns, rank=rank))


def _main_program(logs: list[SpanLog], complaints: list[str]) -> list[SpanLog]:
    """Of programs that number their ranks each from 0 (trainer, generator), the one that trains."""
    records: dict[str, int] = {}
    for log in logs:
        count = sum(len(piece.columns) for piece in log.pieces)
        if count:
            records[log.program] = records.get(log.program, 0) + count
    if len(records) < 2:
        return logs
    main = max(records, key=lambda name: ("train" in name, records[name], name))
    others = ", ".join(sorted(name or "a log without a source" for name in records.keys() - {main}))
    complaints.append(f"structured logs: ranks of {others} are not those of {main}, left out")
    return [log for log in logs if log.program == main]


def _last_open(logs: list[SpanLog]) -> dict[int, OpenSpan]:
    """What each rank was in when the last of its logs ends; nothing if it had left everything."""
    last: dict[int, SpanLog] = {}
    for log in logs:
        if log.rank not in last or not log.end < last[log.rank].end:
            last[log.rank] = log
    return {rank: log.open_span for rank, log in sorted(last.items()) if log.open_span is not None}
