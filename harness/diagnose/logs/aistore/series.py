"""One daemon's files put in a row: what its counters did in a stretch of time, and where it restarted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.diagnose.logs.aistore.counters import stepped_back
from harness.diagnose.logs.aistore.model import TRACKED, Bucket, DaemonFile, Sample, Seen
from harness.model.diagnosis import Citation

DEFAULT_SPACING_S = 180.0


@dataclass(frozen=True)
class Step:
    """Two neighbouring stats lines: `grew` is in the order of TRACKED; `file`, `line` are of the later."""

    start: float
    end: float
    grew: tuple[int, ...]
    file: str
    line: int
    restart: bool


@dataclass(frozen=True)
class Series:
    """One daemon: its files in order of time (INFO files; ERROR files repeat them and serve only alone)."""

    role: str
    id: str
    files: tuple[DaemonFile, ...]
    steps: tuple[Step, ...]

    @property
    def began(self) -> float:
        """The first moment that its logs know."""
        return self.files[0].began

    @property
    def last(self) -> float:
        """The last moment that its logs know."""
        return max(file.last for file in self.files)


def series(files: Iterable[DaemonFile]) -> tuple[Series, ...]:
    """All daemons of `files`, targets behind proxies, by id; files without a known day are left out."""
    groups: dict[tuple[str, str], list[DaemonFile]] = {}
    for file in files:
        if file.dated:
            groups.setdefault((file.role, file.id), []).append(file)
    found: list[Series] = []
    for (role, id_), members in sorted(groups.items(), key=lambda item: (item[0][0], natural(item[0][1]))):
        kept = [file for file in members if file.level == "INFO"] or members
        kept.sort(key=lambda file: (file.began, file.name))
        found.append(Series(role, id_, tuple(kept), tuple(_steps(kept))))
    return tuple(found)


def natural(text: str) -> tuple[str, int, str]:
    """A key that puts ais-target-2 before ais-target-10."""
    head = text.rstrip("0123456789")
    tail = text[len(head) :]
    return head, int(tail[:9] or 0), text


def moved(file: DaemonFile, by_s: float) -> DaemonFile:
    """The same file with all times moved."""

    def seen(old: Seen) -> Seen:
        return replace(old, at=old.at + by_s)

    return replace(
        file,
        began=file.began + by_s,
        last=file.last + by_s,
        year_known=True,
        samples=tuple(replace(sample, at=sample.at + by_s) for sample in file.samples),
        fell=tuple(replace(sample, at=sample.at + by_s) for sample in file.fell),
        patterns={
            name: tuple(Bucket(b.count, seen(b.first), seen(b.last)) for b in buckets)
            for name, buckets in (file.patterns or {}).items()
        },
    )


def restarts(daemon: Series, start: float, end: float) -> Iterator[Citation]:
    """What shows that the daemon restarted between `start` and `end`.

    A file that begins there, unless its first line says that it was only rotated, or its counters go on
    from where the file before stopped; a stats line that is below the one before.
    """
    for before, file in zip([None, *daemon.files[:-1]], daemon.files, strict=True):
        if start < file.began < end and file.header != "rotated":
            if file.header == "started":
                yield Citation("log", f"{daemon.id} started up inside the window", file.name, 1)
            elif not _goes_on(before, file):
                yield Citation("log", f"{daemon.id}: a new log begins inside the window", file.name, 1)
        for sample in file.fell:
            if start < sample.at < end:
                yield Citation(
                    "log", f"{daemon.id}: counters fell, so it had restarted", file.name, sample.line
                )


def spacing_s(steps: Sequence[Step]) -> float:
    """The usual distance of stats lines, in seconds."""
    spans = sorted(step.end - step.start for step in steps)
    return spans[len(spans) // 2] if spans else DEFAULT_SPACING_S


def _goes_on(before: DaemonFile | None, file: DaemonFile) -> bool:
    if before is None or not before.samples or not file.samples:
        return False
    old, new = before.samples[-1].values, file.samples[0].values
    return any(old) and not stepped_back(old, new)


def _steps(files: Sequence[DaemonFile]) -> Iterator[Step]:
    last: Sample | None = None
    for file in files:
        if file.header == "started":
            last = Sample(file.began, 1, (0,) * len(TRACKED))
        for sample in file.samples:
            if last is not None and sample.at >= last.at:
                # After a restart the counters begin at zero: all that they show has grown since.
                grew = tuple(
                    new - old if new >= old else new
                    for old, new in zip(last.values, sample.values, strict=True)
                )
                back = stepped_back(last.values, sample.values)
                if back:
                    grew = sample.values
                yield Step(last.at, sample.at, grew, file.name, sample.line, back)
            last = sample
