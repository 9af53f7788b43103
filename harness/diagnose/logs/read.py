"""All text files under some paths in one pass: events for this room, step records for the room of signals."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.diagnose.logs.aistore.names import is_daemon_log
from harness.diagnose.logs.reader import FileLog, LogReader
from harness.diagnose.logs.wanted import WANTED
from harness.diagnose.signals.formats.foreign import Foreign
from harness.diagnose.signals.formats.read import FileReaders, FileRecords, assemble, read_spans
from harness.diagnose.texts.files import TextFile, find_texts
from harness.diagnose.texts.pool import EachFile, OnProgress
from harness.diagnose.texts.scan import Scanner
from harness.diagnose.texts.sniff import SPANS


@dataclass(frozen=True)
class Texts:
    """What all files say, before anything is weighed. `daemons`: AIStore's own logs, (name, path)."""

    logs: tuple[FileLog, ...]
    foreign: Foreign
    daemons: tuple[tuple[str, Path], ...]
    mtimes: dict[str, float]
    complaints: tuple[str, ...]


@dataclass(frozen=True)
class _Reading:
    log: FileLog | None
    records: FileRecords


class Reading:
    """All logs under some paths, read once. Large ones are read by other processes, which begin at once."""

    def __init__(self, paths: Sequence[Path], scratch: Path) -> None:
        found, self._complaints = find_texts(paths, scratch)
        self._daemons = [file for file in found if file.kind != SPANS and _is_daemon(file)]
        self._files = [file for file in found if file not in self._daemons]
        scanner = Scanner(WANTED)
        # Before processes are forked, which then have it too.
        scanner.ready()
        self._read = EachFile(self._files, lambda file: _read(file, scanner), _lost)

    def texts(self, on_progress: OnProgress = lambda done, total: None) -> Texts:
        """What they say. Never raises for what is in a file; what cannot be read gives one complaint."""
        read = self._read.results(on_progress)
        foreign = assemble([r.records for r in read], self._complaints)
        logs = tuple(r.log for r in read if r.log is not None)
        mtimes = {file.name: _mtime(file) for file in self._files}
        return Texts(
            logs,
            foreign,
            tuple((file.name, file.path) for file in self._daemons),
            {name: at for name, at in mtimes.items() if at is not None},
            tuple(c for log in logs for c in log.complaints),
        )

    def close(self) -> None:
        """End what is not waited for any more."""
        self._read.close()


@contextmanager
def reading(paths: Sequence[Path]) -> Iterator[Reading]:
    """Begin to read all logs under `paths`. What archives hold is gone at the end."""
    with TemporaryDirectory(prefix="drill-logs-") as scratch:
        logs = Reading(paths, Path(scratch))
        try:
            yield logs
        finally:
            logs.close()


def _is_daemon(file: TextFile) -> bool:
    try:
        with file.path.open("rb") as opened:
            head = opened.read(8 << 10).decode(errors="replace")
    except OSError:
        return False
    return is_daemon_log(file.name, head)


def _read(file: TextFile, scanner: Scanner) -> _Reading:
    if file.kind == SPANS:
        return _Reading(None, read_spans(file))
    steps, log = FileReaders(file), LogReader(file)
    lines = scanner.lines(file)
    for line in lines:
        steps.feed(line)
        log.feed(line)
        lines.follow = steps.follow or log.follow
    said = log.finish()
    said.complaints.extend(f"{file.name}: {phrase}" for phrase in lines.complaints)
    return _Reading(said, steps.finish())


def _lost(file: TextFile, why: str) -> _Reading:
    log = FileLog(file, complaints=[f"{file.name}: {why}"])
    return _Reading(log, FileRecords(file.name))


def _mtime(file: TextFile) -> float | None:
    try:
        return file.path.stat().st_mtime
    except OSError:
        return None
