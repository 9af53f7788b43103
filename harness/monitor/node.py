"""One node's exporter: follows its files, keeps the board and the job's state. No network here."""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.diagnose.signals.thresholds import ALERTS, AlertThresholds
from harness.monitor.board import Board
from harness.monitor.follow import Follower, Lines
from harness.monitor.job_state import JobState
from harness.monitor.places import Place, read_places
from harness.monitor.records import LauncherRecord, RecordReader, SpanRecord, StepRecord
from harness.monitor.xids import Xids

PLACES_EVERY_S = 5.0
"""How often ranks.json and the registrations are read again."""

_OURS = re.compile(r"rank_(\d+)\.jsonl$")
_TITAN = re.compile(r"global_rank_(\d+)\.")
_ATTEMPT = re.compile(r"attempt_(\d+)$")


@dataclass(frozen=True)
class Sources:
    """What one exporter reads. `events`: a launcher's; `kernel_log`: what the kernel says."""

    folders: Sequence[Path]
    events: Path | None = None
    kernel_log: Path | None = None
    ranks: Path | None = None
    live: Path | None = None


@dataclass
class Node:
    """Everything that one exporter knows. `poll` it from one thread; take `lock` to read from another."""

    job: str
    host: str
    sources: Sources
    thresholds: AlertThresholds = ALERTS
    xids: Xids = field(default_factory=Xids)
    bad_lines: int = 0
    read_at: float = 0.0
    problems: Mapping[str, str] = field(default_factory=dict)
    """Files that cannot be read now, and why."""
    seen: bool = False
    """Whether any rank has finished a step."""
    places_version: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.board = Board(self.thresholds)
        self.state = JobState(self.thresholds)
        given = self.sources
        self._follower = Follower(given.folders)
        by_name = tuple(path for path in (given.events,) if path is not None)
        kernel = tuple(path for path in (given.kernel_log,) if path is not None)
        self._said = Follower((), by_name, kernel)
        self._reader = RecordReader()
        self._places: dict[int, Place] = {}
        self._places_read = -PLACES_EVERY_S
        self._starts: dict[int, list[str]] = {}
        self._files: dict[str, tuple[int, int] | None] = {}

    @property
    def refused(self) -> dict[str, int]:
        """What was refused because there was too much of it, and how often."""
        cards = {"cards": self.xids.refused} if self.xids.refused else {}
        return {**self.board.refused, **cards}

    def place(self, rank: int) -> Place:
        """Where a rank runs; this host where nothing says so."""
        return self._places.get(rank) or Place(self.host)

    def poll(self, now: float | None = None) -> None:
        """Read what is new and look at the job. `now`: unix seconds."""
        now = time.time() if now is None else now
        self._read_places()
        # Each file's lines under the lock by themselves: a scrape does not wait for a thousand files.
        for lines in self._follower.poll():
            with self.lock:
                self._take(lines, now)
        with self.lock:
            for path in self._follower.paths:
                self._note_start(path)
            for lines in self._said.poll():
                self._listen(lines, now)
            self._note_readable()
            self.problems = {**self._follower.problems, **self._said.problems}
            progress = self.board.progress(self.xids.last)
            self.seen = self.seen or progress is not None
            self.state.look(now, progress)
            self.read_at = now

    def _take(self, lines: Lines, now: float) -> None:
        arrived = min(now, lines.modified) if lines.backlog else now
        start = self._start_of(lines.path)
        attempt = start[1] if start else None
        for line in lines.lines:
            try:
                record = self._reader.read(line, attempt)
            except ValueError:
                self.bad_lines += 1
                continue
            if isinstance(record, StepRecord):
                self.board.add(record, arrived)
            elif isinstance(record, SpanRecord):
                self.board.add_span(record, attempt or 0, arrived)
            elif isinstance(record, LauncherRecord):
                self.state.launcher(record)

    def _listen(self, lines: Lines, now: float) -> None:
        """A launcher's events, or the kernel's words."""
        if lines.path == str(self.sources.events):
            self._take(lines, now)
            return
        for line in lines.lines:
            self.xids.read(line, now)

    def _note_start(self, path: str) -> None:
        """A file without a record already says that its rank has started."""
        if path not in self._files and (start := self._start_of(path)) is not None:
            self.board.start(*start)

    def _start_of(self, path: str) -> tuple[int, int] | None:
        """Rank and attempt, from a file's place and name; None where they do not say."""
        if path not in self._files:
            self._files[path] = self._parse(Path(path))
        return self._files[path]

    def _parse(self, path: Path) -> tuple[int, int] | None:
        if (titan := _TITAN.search(path.name)) is not None:
            # A restarted torchtitan begins a new file.
            rank = int(titan[1])
            files = self._starts.setdefault(rank, [])
            files.append(str(path))
            return rank, len(files) - 1
        ours, attempt = _OURS.search(path.name), _ATTEMPT.search(path.parent.name)
        if ours is None:
            return None
        return int(ours[1]), int(attempt[1]) if attempt else 0

    def _note_readable(self) -> None:
        problems = self._follower.problems
        there: dict[int, bool] = {}
        for path in self._follower.paths:
            start = self._files.get(path)
            if start is not None:
                there[start[0]] = path not in problems
        self.board.readable(there)

    def _read_places(self) -> None:
        now = time.monotonic()
        if now - self._places_read < PLACES_EVERY_S:
            return
        self._places_read = now
        places = read_places(self.sources.ranks, self.sources.live)
        if places and places != self._places:
            self._places = {**self._places, **places}
            self.places_version += 1
