"""A job that we did not start, end to end: find its ranks, sample, fetch dumps and logs, diagnose.

It reads, and writes one byte into dump pipes that the job itself holds open. It never stops, signals or
waits on a rank.
"""

import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.bundle.codec import write_atomically
from harness.bundle.environment import relevant_environment, versions
from harness.bundle.folders import fresh_folder, point_latest
from harness.bundle.layout import Layout
from harness.bundle.reader import BundleReader
from harness.bundle.writer import BundleWriter
from harness.diagnose.api import Result, diagnose
from harness.diagnose.movement import Movement, movement
from harness.diagnose.stacks.samples import RankStacks, read_sampling
from harness.diagnose.stacks.sites import position
from harness.model.bundle import Manifest, RankMap, RankRecord, Uncollected
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.ranks import format_ranks
from harness.observe.backends import Backends, backends_of
from harness.observe.collect import Collector
from harness.observe.copying import copy_end
from harness.observe.gpus import GpuState, gpu_state
from harness.observe.job_dumps import JobDumps
from harness.observe.job_logs import JobLogs
from harness.observe.jobs import Job, RankProcess
from harness.observe.kernel import dmesg
from harness.observe.processes import is_alive
from harness.observe.reach import Reach
from harness.observe.tail import StepTail

LOOKS_S = (0.0, 0.8, 1.8, 3.2)
"""When stacks are sampled, from the first sampling on; no longer than it takes to see that the job moves."""

WAIT_S = 75.0
"""NCCL's own way from a timeout to a dump: its store is polled each second, the dump may take 15 s, and
the watchdog sleeps four times that before it throws."""

_LONG_WAIT_S = 5.0
_SAID_EVERY_S = 10.0

Progress = Callable[[str, str], None]
"""Called with a phase's name and a detail for people."""


@dataclass(frozen=True)
class CollectSeconds:
    """How long each part took. `looking` is the sampling, `waiting` is for dumps."""

    looking: float
    waiting: float
    copying: float
    diagnosing: float
    total: float


@dataclass(frozen=True)
class CollectResult:
    """What one collection came to."""

    bundle: Path
    job: Job
    result: Result
    notice: str
    seconds: CollectSeconds


def collect_folder(out: Path | None, now: float | None = None) -> Path:
    """The folder of a collection: `out` itself, or ``runs/<time>-collect``.

    Raises:
        UsageError: `out` has something in it.
        PrerequisiteError: it cannot be made.
    """
    if out is None:
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-collect"
        root = fresh_folder(Path("runs") / name)
        point_latest(root)
        return root
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UsageError(f"--out {out}: there is something in it: give a new folder")
    except OSError as error:
        raise PrerequisiteError(f"--out {out}: {error.strerror}: give a folder that you can write") from None
    return out


@dataclass
class Incident:
    """One collection from a running job. `run` it once; the job does not notice."""

    job: Job
    root: Path
    dump_prefix: str | None = None
    log_dir: Path | None = None
    wait_s: float = WAIT_S
    progress: Progress = lambda phase, detail: None
    _moved: Movement = field(default_factory=Movement)
    _stepped: bool = False
    _samplings: int = 0
    _said: float = -1.0

    def run(self) -> CollectResult:
        """Collect and diagnose.

        Raises:
            PrerequisiteError: the folder cannot be written.
        """
        begun = time.monotonic()
        job = self.job
        self._backends = {rank: backends_of(pid) for rank, pid in job.pids.items()}
        self._writer = self._create()
        self._collector = Collector(self._writer, job.attempt)
        self._reaches = {rank: Reach(process.pid) for rank, process in job.ranks.items()}
        try:
            dumps = JobDumps(job, self._reaches, self.dump_prefix)
            self._look(dumps)
            looked = time.monotonic()
            waited_s = self._wait(dumps)
            waited = time.monotonic()
            self._fetch(dumps, waited_s)
            self._writer.phase("collected")
        finally:
            for reach in self._reaches.values():
                reach.close()
        fetched = time.monotonic()
        self.progress("diagnose", "")
        for lost in self._writer.lost:
            self._writer.not_collected(lost.what, lost.why)
        result = diagnose(self.root)
        self._writer.save(self._writer.layout.diagnosis, result.diagnosis)
        self._writer.phase("diagnosed")
        end = time.monotonic()
        seconds = CollectSeconds(
            looked - begun, waited - looked, fetched - waited, end - fetched, end - begun
        )
        return CollectResult(self.root, job, result, self._writer.manifest.notice or "", seconds)

    def _create(self) -> BundleWriter:
        job = self.job
        names = {name for backends in self._backends.values() for name in backends.names}
        first = job.ranks[min(job.ranks)]
        writer = BundleWriter(
            self.root,
            Manifest(
                world_size=job.world_size,
                backend="nccl" if "nccl" in names else "gloo" if "gloo" in names else "unknown",
                launcher="collected",
                created=time.time(),
                host=platform.node(),
                # Ours: the job's torch may be another one.
                versions={name: v for name, v in versions().items() if name != "torch"},
                environment=relevant_environment(first.environ),
            ),
        )
        try:
            writer.layout.logs.mkdir(parents=True)
        except OSError as error:
            raise PrerequisiteError(f"{self.root}: {error.strerror}: give another --out") from None
        writer.phase("found")
        for lacking in (*job.lacking, *_not_found(job)):
            writer.not_collected(lacking.what, lacking.why)
        self._note_differences(writer, first)
        return writer

    def _note_differences(self, writer: BundleWriter, first: RankProcess) -> None:
        """Variables that should be alike on all ranks and are not."""
        own = _shared_variables(first)
        for rank, process in self.job.ranks.items():
            for name, value in _shared_variables(process).items() if process.environ else ():
                if own.get(name) != value:
                    writer.event("environment differs", rank, f"{name}={value}")

    def _look(self, dumps: JobDumps) -> None:
        """Sample stacks, ask for dumps, sample again until the job is seen moving or the looks are over."""
        steps = self._step_tail()
        steps.new_durations_s()
        start = time.monotonic()
        first: Mapping[int, RankStacks] = {}
        before: dict[int, tuple[float, int]] = {}
        for look, due in enumerate(LOOKS_S):
            time.sleep(max(0.0, start + due - time.monotonic()))
            self.progress("stacks", f"sampling {look + 1} of {len(self.job.ranks)} ranks")
            stacks = self._sample()
            switches = {rank: (time.monotonic(), n) for rank, n in self._switches().items()}
            if look == 0:
                first, before = stacks, switches
                dumps.ask()
                self._writer.event("dump asked", detail=f"ranks {format_ranks(dumps.asked) or 'none'}")
            else:
                self._moved |= movement(first, stacks, _rates(before, switches))
            if look and (self._moved.moving or steps.new_durations_s()):
                self._stepped = not self._moved.moving
                break
        self._first, self._start = first, start
        self._notice()
        self._writer.phase("noticed")

    @property
    def _moving(self) -> bool:
        return self._moved.moving or self._stepped

    def _notice(self) -> None:
        span = f"within {time.monotonic() - self._start:.1f} s"
        moved = self._moved
        if self._stepped:
            text = f"moving: steps were completed {span}"
        elif moved.moving:
            text = f"moving: the main threads of ranks {format_ranks(moved.moved)} moved {span}"
        elif moved.compared:
            still = moved.compared - moved.moved
            text = f"standing: the main threads of ranks {format_ranks(still)} did not move {span}"
        else:
            text = "unknown: no main thread could be read twice"
        self._writer.notice(f"collect: {text}")

    def _sample(self) -> Mapping[int, RankStacks]:
        sampling = self._samplings
        self._samplings += 1
        self._collector.stacks(self.job.pids, sampling)
        folder = self._writer.layout.stacks / f"attempt_{self.job.attempt}" / str(sampling)
        return read_sampling(folder, self.root)[0]

    def _switches(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for rank, pid in self.job.pids.items():
            with suppress(psutil.Error):
                found[rank] = psutil.Process(pid).num_ctx_switches().voluntary
        return found

    def _wait(self, dumps: JobDumps) -> float:
        """Wait for dumps that were asked for, then for those that watchdogs may still write."""
        if dumps.asked:
            self.progress("dumps", f"asked ranks {format_ranks(dumps.asked)}")
            dumps.await_answers()
            dumps.give_up_asking()
        if self._moving or not self.wait_s or not any(dumps.may_dump(rank) for rank in dumps.absent()):
            return 0.0
        start = time.monotonic()
        dumps.await_watchdog(self.wait_s, self._waiting)
        waited = time.monotonic() - start
        if waited > _LONG_WAIT_S:
            self._moved |= movement(self._first, self._sample())
            self._notice()
        return waited

    def _waiting(self, left_s: float) -> None:
        if left_s // _SAID_EVERY_S != self._said:
            self._said = left_s // _SAID_EVERY_S
            self.progress("dumps", f"watchdogs may still write theirs: {left_s:.0f} s left (--wait)")

    def _fetch(self, dumps: JobDumps, waited_s: float) -> None:
        self.progress("copy", "dumps, logs, kernel log, devices")
        self._fetch_dumps(dumps, waited_s)
        self._fetch_logs()
        self._fetch_signals()
        self._fetch_kernel_log()
        gpus = gpu_state()
        if gpus.gpus:
            self._writer.save(self.root / "gpu.json", gpus)
            self._writer.collected("GPU state")
        elif "nccl" in {name for backends in self._backends.values() for name in backends.names}:
            self._writer.not_collected("GPU state", gpus.error or "nvidia-smi lists no device")
        self._writer.rank_map(self._rank_map(gpus))
        ended = [rank for rank, pid in self.job.pids.items() if not is_alive(pid)]
        for rank in ended:
            self._writer.event("exited", rank, "while we collected")

    def _fetch_dumps(self, dumps: JobDumps, waited_s: float) -> None:
        layout, attempt = self._writer.layout, self.job.attempt
        copied, failed = dumps.copy(lambda rank: layout.dump(attempt, rank), self.job.world_size)
        reasons: dict[str, list[int]] = {}
        for rank in set(self.job.ranks) - set(copied):
            why = failed.get(rank) or dumps.why_absent(rank, waited_s, self._moving)
            reasons.setdefault(why, []).append(rank)
        for why, ranks in reasons.items():
            self._writer.not_collected(f"flight recorder of rank {format_ranks(ranks)}", why)
        if copied:
            self._writer.collected(f"flight recorder of ranks {format_ranks(copied)}")

    def _fetch_logs(self) -> None:
        logs = JobLogs(self.job, self._reaches, self._writer.layout, self.log_dir)
        logs.copy()
        for lacking in logs.lacking:
            self._writer.not_collected(lacking.what, lacking.why)
        if logs.copied:
            self._writer.collected(f"{logs.copied} log files")

    def _fetch_signals(self) -> None:
        theirs = self._harness_layout()
        folder = f"attempt_{self.job.attempt}"
        for file in sorted((theirs.signals / folder).glob("rank_*.jsonl")) if theirs else ():
            try:
                copy_end(file, self._writer.layout.signals / folder / file.name)
            except OSError as error:
                self._writer.not_collected(f"signals {file.name}", error.strerror or str(error))

    def _fetch_kernel_log(self) -> None:
        log, why = dmesg()
        if why is not None:
            self._writer.not_collected("kernel log", why)
            return
        try:
            write_atomically(self.root / "kernel.log", log)
        except OSError as error:
            self._writer.not_collected("kernel log", error.strerror or str(error))
            return
        self._writer.collected("kernel log")

    def _rank_map(self, gpus: GpuState) -> RankMap:
        theirs = self._harness_layout()
        said = BundleReader(theirs).registrations() if theirs else ()
        registered = {r.rank: r for r in said if r.attempt == self.job.attempt}
        ranks = self.job.ranks.items()
        found = tuple(registered.get(rank) or self._record(process, gpus) for rank, process in ranks)
        return RankMap(self.job.world_size, found)

    def _record(self, process: RankProcess, gpus: GpuState) -> RankRecord:
        name, uuid = gpus.device_of(process.pid)
        return RankRecord(
            rank=process.rank,
            host=platform.node(),
            pid=process.pid,
            local_rank=process.local_rank,
            attempt=self.job.attempt,
            world_size=self.job.world_size,
            device=name,
            device_uuid=uuid,
            started=process.started,
            joined=self._joined(process.rank),
        )

    def _joined(self, rank: int) -> float | None:
        """When a rank's first group stood; without thread names its start, once any rank talks."""
        if any(backends.joined for backends in self._backends.values()):
            backends: Backends = self._backends[rank]
            return backends.joined
        doing = _doings(self._first)
        talks = any(d in ("communication", "leaving") for d in doing.values())
        return self.job.ranks[rank].started if talks and doing.get(rank) != "joining" else None

    def _harness_layout(self) -> Layout | None:
        """The bundle of a job whose ranks joined through our own worker; None for any other."""
        for rank, process in self.job.ranks.items():
            if root := process.environ.get("DRILL_BUNDLE"):
                return Layout(self._reaches[rank].path(Path(root)))
        return None

    def _step_tail(self) -> StepTail:
        theirs = self._harness_layout()
        signals = theirs.signals if theirs else self._writer.layout.signals
        return StepTail(signals / f"attempt_{self.job.attempt}")


def _doings(stacks: Mapping[int, RankStacks]) -> dict[int, str]:
    mains = {rank: sample.own.main for rank, sample in stacks.items() if sample.own}
    return {rank: position(main).doing for rank, main in mains.items() if main}


def _rates(
    before: Mapping[int, tuple[float, int]], after: Mapping[int, tuple[float, int]]
) -> dict[int, float]:
    return {
        rank: (after[rank][1] - count) / max(0.1, after[rank][0] - at)
        for rank, (at, count) in before.items()
        if rank in after
    }


def _shared_variables(process: RankProcess) -> dict[str, str]:
    """Relevant variables without those that name one rank's own files and devices."""
    own = ("TORCHELASTIC_ERROR_FILE", "CUDA_VISIBLE_DEVICES")
    return {k: v for k, v in relevant_environment(process.environ).items() if k not in own}


def _not_found(job: Job) -> list[Uncollected]:
    """Ranks that an agent of this machine should have and that have no process."""
    lacking: list[Uncollected] = []
    for agent in job.agents:
        mine = [p for p in job.ranks.values() if p.parent == agent]
        size = mine[0].environ.get("LOCAL_WORLD_SIZE", "")
        if not size.isdigit():
            continue
        expected = {mine[0].rank - mine[0].local_rank + local for local in range(int(size))}
        missing = expected - set(job.ranks)
        if missing:
            why = f"no process of it was looked at or found under pid {agent}"
            lacking.append(Uncollected(f"rank {format_ranks(missing)}", why))
    return lacking
