"""Flight Recorder dumps of a job that we did not start: where they lie, asking for them, waiting, copying."""

import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.observe.backends import backends_of, has_gpu_open
from harness.observe.dumps import PIPE_VARIABLE, PREFIX_VARIABLES, await_dumps, dump_prefix, request_dumps
from harness.observe.jobs import Job, RankProcess
from harness.observe.processes import is_alive
from harness.observe.reach import Reach

PIPE_WAIT_S = 15.0
"""NCCL looks at its pipe once a second, and the first dump with stacks of a process takes some seconds."""

_SETTLED_S = 0.3
_TOGETHER_S = 120.0
_POLL_S = 0.1
_OLD_DEFAULT = "/tmp/nccl_trace_rank_"
"""Where torch before 2.8 put dumps if nothing was set."""

ASK_NEXT_TIME = (
    "before the next start set TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/persistent/folder/fr_, "
    "TORCH_FR_DUMP_TEMP_FILE=/persistent/folder/rank_, TORCH_FR_BUFFER_SIZE=20000 and "
    "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"
)


@dataclass
class JobDumps:
    """The dumps of one job's ranks on this machine.

    A file counts as a rank's dump if it is newer than the rank's process, and, where the rank was asked,
    newer than the asking: what lies there from an earlier job or an earlier look would accuse it.
    """

    job: Job
    reaches: Mapping[int, Reach]
    given_prefix: str | None = None
    asked_ns: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    asked: dict[int, Path] = field(default_factory=dict)

    def ask(self) -> None:
        """Write a byte into the pipe of each rank that was started with one."""
        self.asked_ns = time.time_ns()
        pipes = {rank: pipe for rank in self.job.ranks if (pipe := self._pipe(rank)) is not None}
        self.refused = request_dumps(pipes)
        self.asked = {rank: pipe for rank, pipe in pipes.items() if rank not in self.refused}

    def await_answers(self) -> None:
        """Wait for the dumps of the ranks that were asked."""
        files = {rank: self.newest(rank) or self.places(rank)[0] for rank in self.asked if self.places(rank)}
        left = PIPE_WAIT_S - (time.time_ns() - self.asked_ns) / 1e9
        pids = self.job.pids
        await_dumps(files, self.asked_ns, lambda rank: is_alive(pids[rank]), max(0.0, left))

    def await_watchdog(self, limit_s: float, tick: Callable[[float], None] = lambda left: None) -> None:
        """Wait until every rank that may still dump by itself has done so, has ended, or time is up."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            waiting = [rank for rank in self.absent() if self.may_dump(rank)]
            if not waiting:
                return
            tick(deadline - time.monotonic())
            time.sleep(_POLL_S)

    def absent(self) -> list[int]:
        """Ranks without a dump of this incident."""
        return [rank for rank in self.job.ranks if self.fresh(rank) is None]

    def give_up_asking(self) -> None:
        """Where not one asked rank answered, dumps that their watchdogs wrote earlier count after all."""
        if all(self.fresh(rank) is None for rank in self.asked):
            self.refused.update(dict.fromkeys(self.asked, f"asked, no dump within {PIPE_WAIT_S:g} s"))
            self.asked = {}

    def fresh(self, rank: int) -> Path | None:
        """A rank's dump of this incident, or None."""
        newest = self.newest(rank)
        oldest = self.job.ranks[rank].started
        if rank in self.asked:
            oldest = max(oldest, self.asked_ns / 1e9 - 0.02)
        try:
            return newest if newest is not None and newest.stat().st_mtime >= oldest else None
        except OSError:
            return None

    def newest(self, rank: int) -> Path | None:
        """The newest of the files that may be a rank's dump."""
        found: list[tuple[int, Path]] = []
        for path in self.places(rank):
            try:
                found.append((path.stat().st_mtime_ns, path))
            except OSError:
                continue
        return max(found)[1] if found else None

    def places(self, rank: int) -> list[Path]:
        """Where a rank's dump may lie, as we can reach it."""
        process = self.job.ranks[rank]
        if self.given_prefix is not None:
            ours = Path(f"{self.given_prefix}{rank}").absolute()
            return [ours] if ours.parent.is_dir() else [self.reaches[rank].path(ours)]
        if not process.environ:
            return []
        prefixes = [dump_prefix(process.environ)]
        if not any(process.environ.get(name) for name in PREFIX_VARIABLES):
            prefixes.append(_OLD_DEFAULT)
        return [self._reached(process, f"{prefix}{rank}") for prefix in prefixes]

    def may_dump(self, rank: int) -> bool:
        """Whether a rank's own watchdog may still write a dump: NCCL's does, gloo has none."""
        process = self.job.ranks[rank]
        if _recorder_off(process.environ) or not is_alive(process.pid):
            return False
        names = backends_of(process.pid).names
        return "nccl" in names or (not names and has_gpu_open(process.pid))

    def copy(self, target: Callable[[int], Path], world_size: int) -> tuple[list[int], dict[int, str]]:
        """Copy what is there to `target(rank)`. Returns the ranks copied, and others with the reason."""
        copied: list[int] = []
        failed: dict[int, str] = {}
        newest = 0.0
        for rank in self.job.ranks:
            path = self.fresh(rank)
            if path is None:
                continue
            try:
                newest = max(newest, _copy_settled(path, target(rank)))
                copied.append(rank)
            except OSError as error:
                failed[rank] = error.strerror or str(error)
        for rank, path in self._of_other_nodes(newest, world_size).items():
            try:
                _copy_settled(path, target(rank))
                copied.append(rank)
            except OSError:
                continue
        return sorted(copied), failed

    def why_absent(self, rank: int, waited_s: float, moving: bool) -> str:
        """Why a rank has no dump here, and what to do about it."""
        process = self.job.ranks[rank]
        if rank in self.refused:
            return self.refused[rank]
        if rank in self.asked:
            return f"asked through its pipe, no dump within {PIPE_WAIT_S:g} s: something holds its GIL"
        if not process.environ and self.given_prefix is None:
            return "its environment cannot be read: say where its dumps are with --dump-path PREFIX"
        old = self.newest(rank)
        if old is not None:
            return f"{old.name} is older than the process: of an earlier job, left out"
        names = backends_of(process.pid).names
        if not is_alive(process.pid):
            return "its process ended without one"
        if names == {"gloo"}:
            return (
                "gloo has no watchdog that dumps, and the job no dump pipe: join through "
                "harness.worker.Session, and before the next start set "
                f"{PIPE_VARIABLE}=/persistent/folder/fr_ and {PREFIX_VARIABLES[0]}=/persistent/folder/rank_"
            )
        if self.may_dump(rank):
            waited = "the job moves, so nobody waited" if moving else f"none within {waited_s:.0f} s"
            return f"its watchdog has written none ({waited}), and the job has no dump pipe: {ASK_NEXT_TIME}"
        if "nccl" in names:
            off = "TORCH_NCCL_DUMP_ON_TIMEOUT or the recorder itself (TORCH_FR_BUFFER_SIZE) is off"
            return f"{off}, and the job has no dump pipe: {ASK_NEXT_TIME}"
        return f"no process group's threads are seen in it, and the job has no dump pipe: {ASK_NEXT_TIME}"

    def _pipe(self, rank: int) -> Path | None:
        process = self.job.ranks[rank]
        prefix = process.environ.get(PIPE_VARIABLE)
        return self._reached(process, f"{prefix}{rank}.pipe") if prefix else None

    def _reached(self, process: RankProcess, path: str) -> Path:
        return self.reaches[process.rank].path((process.cwd or Path("/")) / path)

    def _of_other_nodes(self, newest: float, world_size: int) -> dict[int, Path]:
        """Dumps of ranks elsewhere in the same folder, as on a shared file system, of the same moment."""
        found: dict[int, Path] = {}
        places = {(p.parent, p.name.removesuffix(str(r))) for r in self.job.ranks for p in self.places(r)}
        for folder, prefix in places:
            name = re.compile(re.escape(prefix) + r"(\d{1,7})")
            try:
                entries = [(e, m) for e in folder.iterdir() if (m := name.fullmatch(e.name))]
            except OSError:
                continue
            for entry, match in entries:
                rank = int(match.group(1))
                try:
                    together = abs(entry.stat().st_mtime - newest) <= _TOGETHER_S
                except OSError:
                    continue
                if rank not in self.job.ranks and rank < world_size and together:
                    found[rank] = entry
        return found


def _recorder_off(environ: Mapping[str, str]) -> bool:
    """Whether a job was started so that its watchdog leaves no dump."""
    size = environ.get("TORCH_FR_BUFFER_SIZE", environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"))
    asked = environ.get("TORCH_NCCL_DUMP_ON_TIMEOUT", "1").lower()
    return size == "0" or asked in ("0", "false", "n", "no")


def _copy_settled(source: Path, target: Path) -> float:
    """Copy a dump once it has stopped growing: torch does not write it in one go. Returns its time.

    Raises:
        OSError: it cannot be read or written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(20):
        before = source.stat()
        if before.st_size and time.time() - before.st_mtime > _SETTLED_S:
            shutil.copy2(source, target)
            after = source.stat()
            if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
                break
        time.sleep(_SETTLED_S / 2)
    else:
        shutil.copy2(source, target)
    return source.stat().st_mtime
