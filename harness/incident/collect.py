"""One collection from a running job, end to end.

It reads, and writes one byte into dump pipes that the job itself holds open. It never stops, signals or
waits on a rank.
"""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.bundle.codec import write_atomically
from harness.bundle.environment import relevant_environment, versions
from harness.bundle.folders import fresh_folder, point_latest
from harness.bundle.layout import Layout
from harness.bundle.writer import BundleWriter
from harness.diagnose.api import Result, diagnose
from harness.incident.census import differing_variables, rank_map, ranks_not_found
from harness.incident.look import Look
from harness.model.bundle import Manifest
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.ranks import format_ranks
from harness.observe.backends import backends_of
from harness.observe.collect import Collector
from harness.observe.copying import copy_end
from harness.observe.gpus import gpu_state
from harness.observe.job_dumps import JobDumps
from harness.observe.job_logs import JobLogs
from harness.observe.jobs import Job
from harness.observe.kernel import dmesg
from harness.observe.processes import is_alive
from harness.observe.reach import Reach
from harness.observe.repeated import OVER_S, SAMPLES, RepeatedSampling
from harness.observe.tail import StepTail

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
    """One collection. `run` it once; the job does not notice.

    `dump_prefix` and `log_dir` are where dumps and logs are, if the ranks' environment does not say it.
    `samples`, `over_s`: how often, and over how long, a job that is seen moving is sampled.
    """

    job: Job
    root: Path
    dump_prefix: str | None = None
    log_dir: Path | None = None
    wait_s: float = WAIT_S
    samples: int = SAMPLES
    over_s: float = OVER_S
    progress: Progress = lambda phase, detail: None
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
        self._reaches = {rank: Reach(process.pid) for rank, process in job.ranks.items()}
        try:
            dumps = JobDumps(job, self._reaches, self.dump_prefix)
            theirs = self._harness_layout()
            signals = (theirs or self._writer.layout).signals / f"attempt_{job.attempt}"
            self._look = Look(job, self._writer, StepTail(signals))
            self._look.watch(lambda: self._ask(dumps), self.progress)
            self._writer.phase("noticed")
            self._sample_again()
            looked = time.monotonic()
            waited_s = self._wait(dumps)
            waited = time.monotonic()
            self._fetch(dumps, waited_s)
            self._writer.phase("collected")
        finally:
            for reach in self._reaches.values():
                reach.close()
        fetched = time.monotonic()
        result = self._diagnose()
        end = time.monotonic()
        parts = (looked - begun, waited - looked, fetched - waited, end - fetched, end - begun)
        notice = self._writer.manifest.notice or ""
        return CollectResult(self.root, job, result, notice, CollectSeconds(*parts))

    @property
    def _names(self) -> set[str]:
        """Back ends that any rank uses."""
        return {name for backends in self._backends.values() for name in backends.names}

    def _create(self) -> BundleWriter:
        job, names = self.job, self._names
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
        for lacking in (*job.lacking, *ranks_not_found(job)):
            writer.not_collected(lacking.what, lacking.why)
        for rank, variable in differing_variables(job):
            writer.event("environment differs", rank, variable)
        return writer

    def _ask(self, dumps: JobDumps) -> None:
        dumps.ask()
        self._writer.event("dump asked", detail=f"ranks {format_ranks(dumps.asked) or 'none'}")

    def _sample_again(self) -> None:
        """Where the ranks of a job that moves spend their time. One that stands stays where it is."""
        if not self._look.moving or not self.samples:
            return
        sampling = RepeatedSampling(
            self._writer.layout,
            self.job.attempt,
            self.job.pids,
            self.samples,
            self.over_s,
            self._look.samplings,
        )
        sampling.run(lambda taken: self.progress("stacks", f"it moves: {taken} of {self.samples} samplings"))
        sampling.report(self._writer)

    def _wait(self, dumps: JobDumps) -> float:
        """Wait for dumps that were asked for, then for those that watchdogs may still write."""
        if dumps.asked:
            self.progress("dumps", f"asked ranks {format_ranks(dumps.asked)}")
            dumps.await_answers()
            dumps.give_up_asking()
        hopeless = not any(dumps.may_dump(rank) for rank in dumps.absent())
        if self._look.moving or not self.wait_s or hopeless:
            return 0.0
        start = time.monotonic()
        dumps.await_watchdog(self.wait_s, self._waiting)
        waited = time.monotonic() - start
        if waited > _LONG_WAIT_S:
            self._look.again()
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
            Collector(self._writer, self.job.attempt).hardware("now")
        elif "nccl" in self._names:
            self._writer.not_collected("GPU state", gpus.error or "nvidia-smi lists no device")
        ranks = rank_map(self.job, self._backends, self._look.first, gpus, self._harness_layout())
        self._writer.rank_map(ranks)
        for rank, pid in self.job.pids.items():
            if not is_alive(pid):
                self._writer.event("exited", rank, "while we collected")

    def _fetch_dumps(self, dumps: JobDumps, waited_s: float) -> None:
        layout, attempt = self._writer.layout, self.job.attempt
        copied, failed = dumps.copy(lambda rank: layout.dump(attempt, rank), self.job.world_size)
        reasons: dict[str, list[int]] = {}
        for rank in sorted(set(self.job.ranks) - set(copied)):
            why = failed.get(rank) or dumps.why_absent(rank, waited_s, self._look.moving)
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

    def _diagnose(self) -> Result:
        self.progress("diagnose", "")
        for lost in self._writer.lost:
            self._writer.not_collected(lost.what, lost.why)
        result = diagnose(self.root)
        self._writer.save(self._writer.layout.diagnosis, result.diagnosis)
        self._writer.phase("diagnosed")
        return result

    def _harness_layout(self) -> Layout | None:
        """The bundle of a job whose ranks joined through our own worker; None for any other."""
        for rank, process in self.job.ranks.items():
            if root := process.environ.get("DRILL_BUNDLE"):
                return Layout(self._reaches[rank].path(Path(root)))
        return None
