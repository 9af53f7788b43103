"""Daemon logs to what is kept of them: stats lines, lines of known patterns, restarts, by their own clock."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.diagnose.logs.aistore.buckets import Buckets
from harness.diagnose.logs.aistore.clean import cleaned, falls
from harness.diagnose.logs.aistore.clock import Clock
from harness.diagnose.logs.aistore.counters import MAX_STATS_CHARS, read_counters
from harness.diagnose.logs.aistore.lines import UNREADABLE, read_lines
from harness.diagnose.logs.aistore.model import TRACKED, Bucket, DaemonFile, Daemons, Sample, Seen
from harness.diagnose.logs.aistore.names import HEADER, MAX_LINE_CHARS, STAMP, host_facts, name_facts
from harness.diagnose.logs.aistore.patterns import find_pattern
from harness.diagnose.logs.aistore.skim import worth_reading

MAX_SAMPLES = 16384
"""Stats lines kept of one file; beyond that every second one goes, since counters add up."""

MAX_TEXT_CHARS = 300
_MARKS = (b"===", b" common:", b" common_stats:")
_HEADER_LINES = 3


def read_daemons(files: Sequence[tuple[str, Path]]) -> Daemons:
    """Read daemon logs, each given as (name to cite, path), in one pass and in bounded memory.

    Damaged, cut or garbled files give what can be read of them and one line of complaint; a file without any
    stamped line gives only the complaint. Never raises for what stands in a file.
    """
    found: list[DaemonFile] = []
    complaints: list[str] = []
    for name, path in files:
        reader = _Reader(name)
        try:
            for lines in read_lines(path):
                reader.lines(lines)
        except UNREADABLE as error:
            why = str(error) or type(error).__name__
            complaints.append(f"{name}: after line {reader.number}: {why}")
        if reader.stamped:
            found.append(reader.result())
        elif not complaints or not complaints[-1].startswith(f"{name}: "):
            complaints.append(f"{name}: no line with a daemon's time stamp")
    return Daemons(tuple(_without_copies(found)), tuple(complaints))


class _Reader:
    """One file, line by line; times are relative to its first day until `result`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.stamped = False
        self.facts = name_facts(name)
        self.clock = Clock()
        self.header: str | None = None
        self.began: float | None = None
        self.last = 0.0
        if self.facts.start:
            month, day, second = self.facts.start
            if self.clock.begins(month, day, second):
                self.began = float(second)
        self._values = (0,) * len(TRACKED)
        self._samples: list[Sample] = []
        self._newest: Sample | None = None
        self._every = 1
        self._skipped = 0
        self._patterns: dict[str, Buckets] = {}
        self._looks_target = False

    def lines(self, lines: Sequence[bytes]) -> None:
        """Take some lines; the first ones of a file are all looked at."""
        before = self.number
        for index in worth_reading(lines) if before else range(len(lines)):
            self.number = before + index + 1
            self._line(lines[index])
        self.number = before + len(lines)

    def _line(self, raw: bytes) -> None:
        """Take one line; what has no stamp is passed over, except the file's own first lines."""
        if raw[:1] not in b"IWE2" or raw[1:2] not in b" 0":
            if self.number <= _HEADER_LINES:
                self._first_line(raw)
            return
        text = raw[:MAX_STATS_CHARS].decode("utf-8", errors="replace").rstrip("\r")
        stamp = STAMP.match(text)
        if not stamp:
            return
        hour, minute, whole = int(stamp[5]), int(stamp[6]), int(stamp[7])
        if hour > 23 or minute > 59 or whole > 60:
            return
        second = hour * 3600 + minute * 60 + whole + float(f"0.{stamp[8] or 0}")
        self.stamped = True
        at = self.clock.at(second)
        if stamp[2]:
            self.clock.dated(int(stamp[2]), int(stamp[3]), int(stamp[4]))
            at = self.clock.day * 86400 + second
        if any(mark in raw for mark in _MARKS):
            self.clock.marker(text[:MAX_LINE_CHARS], second)
            at = self.clock.day * 86400 + second
        if self.began is None:
            self.began = at
        self.last = max(self.last, at)
        self._content(text, at)

    def result(self) -> DaemonFile:
        """The file as it is kept, in unix seconds as far as the day is known."""
        clock = self.clock
        if self._newest and (not self._samples or self._samples[-1] != self._newest):
            self._samples.append(self._newest)
        samples = tuple(replace(s, at=clock.absolute(s.at)) for s in cleaned(self._samples))
        return DaemonFile(
            name=self.name,
            role=self._role(),
            id=self.facts.id or Path(self.name).name,
            level=self.facts.level,
            began=clock.absolute(self.began or 0.0),
            last=clock.absolute(self.last),
            lines=self.number,
            dated=clock.base is not None,
            year_known=clock.year_known,
            header=self.header,
            zone=clock.zone,
            zone_offset_s=clock.zone_offset_s,
            samples=samples,
            fell=tuple(falls(samples)),
            patterns={name: tuple(self._absolute(found)) for name, found in self._patterns.items()},
        )

    def _absolute(self, buckets: Buckets) -> Iterator[Bucket]:
        for bucket in buckets.all():
            first = replace(bucket.first, at=self.clock.absolute(bucket.first.at))
            last = replace(bucket.last, at=self.clock.absolute(bucket.last.at))
            yield Bucket(bucket.count, first, last)

    def _role(self) -> str:
        if self.facts.role != "unknown":
            return self.facts.role
        return "target" if self._looks_target else "unknown"

    def _first_line(self, raw: bytes) -> None:
        found = HEADER.match(raw[:MAX_LINE_CHARS].decode("utf-8", errors="replace").lstrip("\ufeff"))
        if not found:
            return
        year, month, day, hour, minute, second = (int(found[i]) for i in range(2, 8))
        if (
            hour < 24
            and minute < 60
            and self.clock.begins(month, day, hour * 3600 + minute * 60 + second, year)
        ):
            self.began = float(hour * 3600 + minute * 60 + second)
        self.header = "started" if found[1] == "Started up" else "rotated"
        host = host_facts(found[8])
        role = self.facts.role if self.facts.role != "unknown" else host.role
        self.facts = replace(self.facts, role=role, id=self.facts.id or host.id)

    def _content(self, text: str, at: float) -> None:
        values = read_counters(text, self._values)
        if values is not None:
            self._sample(values, text, at)
            return
        text = text[:MAX_LINE_CHARS]
        if name := find_pattern(text):
            # Only targets move data between each other.
            self._looks_target = self._looks_target or name in ("batch_lost", "stream_broken", "recv_dropped")
            seen = Seen(at, self.number, text[:MAX_TEXT_CHARS])
            self._patterns.setdefault(name, Buckets()).add(seen)

    def _sample(self, values: tuple[int, ...], text: str, at: float) -> None:
        self._looks_target = self._looks_target or "getbatch" in text or "disk." in text
        self._values = values
        self._skipped += 1
        self._newest = Sample(at, self.number, values)
        if self._skipped < self._every:
            return
        self._skipped = 0
        self._samples.append(self._newest)
        if len(self._samples) > MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2


def _without_copies(files: Sequence[DaemonFile]) -> Iterator[DaemonFile]:
    """Each file once: the link to the newest log is often packed as a copy of it."""
    best: dict[tuple[str, str, str, int], DaemonFile] = {}
    for file in files:
        key = (file.role, file.id, file.level, round(file.began))
        if key not in best or best[key].lines < file.lines:
            best[key] = file
    yield from best.values()
