"""Logs of a job that we did not start: what its ranks' standard output and error go to."""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.bundle.layout import Layout
from harness.model.bundle import Uncollected
from harness.model.ranks import format_ranks
from harness.observe.copying import copy_end
from harness.observe.jobs import Job, RankProcess
from harness.observe.reach import Reach

_STREAMS = {1: "stdout.log", 2: "stderr.log"}
_NAMES = (*_STREAMS.values(), "error.json")
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_START_SLACK_S = 5.0
"""Logs are opened before their rank starts, and the kernel gives starts from a boot time in whole seconds."""


@dataclass
class JobLogs:
    """Copies logs into a bundle, each file once. What cannot be had goes to `lacking`."""

    job: Job
    reaches: Mapping[int, Reach]
    layout: Layout
    log_dir: Path | None = None
    lacking: list[Uncollected] = field(default_factory=list)
    copied: int = 0
    _seen: dict[tuple[int, int], Path] = field(default_factory=dict)

    def copy(self) -> None:
        """Copy torchrun's own folders, then whatever else ranks and agents write to."""
        if self.log_dir is not None:
            self._log_dir(self.log_dir)
        elsewhere: dict[str, list[int]] = {}
        for rank, process in self.job.ranks.items():
            self._attempt_folder(process)
            for descriptor in _STREAMS:
                why = self._stream(process, descriptor)
                if why and rank not in elsewhere.setdefault(why, []):
                    elsewhere[why].append(rank)
        for agent in self.job.agents:
            for descriptor in _STREAMS:
                self._open_file(agent, descriptor, self.layout.launcher_log)
        for why, ranks in elsewhere.items():
            self.lacking.append(Uncollected(f"logs of rank {format_ranks(ranks)}", why))

    def _log_dir(self, folder: Path) -> None:
        """torchrun's --log-dir: <run>/attempt_<n>/<local rank>/, of runs that wrote since our ranks began."""
        began = min(process.started for process in self.job.ranks.values()) - _START_SLACK_S
        before = self.copied
        for attempt in sorted({*folder.glob("attempt_*"), *folder.glob("*/attempt_*")}):
            files = [f for name in _NAMES for f in sorted(attempt.glob(f"*/{name}"))]
            if any(file.stat().st_mtime >= began for file in files):
                self._attempt_files(attempt, files)
        if self.copied == before:
            self.lacking.append(
                Uncollected(f"logs under {folder}", "no <run>/attempt_<n>/<local rank>/ of this job is there")
            )

    def _attempt_folder(self, process: RankProcess) -> None:
        """The folder that torchrun made for a rank's log and error file, and its sisters of all attempts."""
        given = process.environ.get(_ERROR_FILE)
        if not given:
            return
        own = self.reaches[process.rank].path((process.cwd or Path("/")) / given).parent
        for attempt in sorted(own.parent.parent.glob("attempt_*")):
            files = [file for name in _NAMES if (file := attempt / own.name / name).is_file()]
            self._attempt_files(attempt, files)

    def _attempt_files(self, attempt: Path, files: list[Path]) -> None:
        run = attempt.parent.name or "run"
        for file in files:
            self._copy(file, self.layout.logs / run / attempt.name / file.parent.name / file.name)

    def _stream(self, process: RankProcess, descriptor: int) -> str | None:
        """Copy what a rank's output goes to. Returns why it cannot be copied, None if it could."""
        file = Path(f"/proc/{process.pid}/fd/{descriptor}")
        try:
            target = file.readlink()
        except OSError as error:
            return f"where its output goes cannot be read: {error.strerror}"
        if target.name == _STREAMS[descriptor] and target.parent.parent.name.startswith("attempt_"):
            run, attempt, local = target.parts[-4:-1]
            return self._copy(file, self.layout.logs / run / attempt / local / target.name)
        shared = self._agents_file(process, descriptor)
        return self._copy(file, shared or self._shared(target))

    def _agents_file(self, process: RankProcess, descriptor: int) -> Path | None:
        """launcher.log where a rank writes to the very file that its agent writes to."""
        for agent in self.job.agents:
            for other in _STREAMS:
                if _identity(Path(f"/proc/{agent}/fd/{other}")) == _identity(
                    Path(f"/proc/{process.pid}/fd/{descriptor}")
                ):
                    return self.layout.launcher_log
        return None

    def _open_file(self, pid: int, descriptor: int, target: Path) -> None:
        file = Path(f"/proc/{pid}/fd/{descriptor}")
        if _identity(file) is not None:
            self._copy(file, target)

    def _shared(self, target: Path) -> Path:
        """A name for a log that is no torchrun folder's: a job's output file."""
        base = target.name.removesuffix(" (deleted)")
        return next(free for free in _numbered(self.layout.logs / "shared" / base) if not free.exists())

    def _copy(self, file: Path, target: Path) -> str | None:
        """Copy a file unless it was copied before. Returns why not."""
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                return (
                    "its output goes to a pipe, a terminal or nowhere: start torchrun with "
                    "--log-dir DIR --redirects 3 (or --tee 3)"
                )
            key = (status.st_dev, status.st_ino)
            if key in self._seen or (target.exists() and target != self.layout.launcher_log):
                return None
            if target == self.layout.launcher_log and target.exists():
                target = self._shared(Path(os.fspath(file.readlink())))
            skipped = copy_end(file, target)
        except OSError as error:
            return f"{file}: {error.strerror or error}"
        self._seen[key] = target
        self.copied += 1
        if skipped:
            name = str(target.relative_to(self.layout.root))
            self.lacking.append(Uncollected(name, f"its first {skipped} bytes were left out"))
        return None


def _identity(file: Path) -> tuple[int, int] | None:
    """Device and inode of a regular file, else None."""
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _numbered(path: Path) -> Iterator[Path]:
    yield path
    for number in range(2, 1000):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
