"""One drill end to end: launch, watch, collect, stop, diagnose, judge. CLI, checklist, pytest call it."""

import os
import platform
import secrets
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.bundle.environment import relevant_environment, versions
from harness.bundle.folders import fresh_folder, point_latest
from harness.bundle.layout import Layout
from harness.bundle.reader import BundleReader
from harness.bundle.writer import BundleWriter
from harness.catalog.planning import bundle_name
from harness.diagnose.api import Result, diagnose
from harness.diagnose.movement import movement
from harness.diagnose.stacks.samples import read_sampling
from harness.durations import Seconds, durations
from harness.judge import Observed, judge, with_page
from harness.launch.client import LauncherClient, LauncherDied, wait_for_end
from harness.launch.request import LaunchRequest
from harness.model.bundle import Manifest, RunRecord
from harness.model.chain import WatchdogChain
from harness.model.errors import Interrupted, PrerequisiteError
from harness.model.page import PageReport
from harness.model.plan import RunPlan
from harness.model.spec import ParameterValue
from harness.model.verdict import Verdict
from harness.monitor.companion import Companion, NoCompanion, companion_of
from harness.observe.clocks import first_step_floor_s, join_limit_s
from harness.observe.collect import Collector
from harness.observe.job_path import JobDumpPath
from harness.observe.needs import MemoryCgroup, why_not
from harness.observe.processes import kill_tree
from harness.observe.repeated import RepeatedSampling
from harness.observe.watch import POLL_S, Notice, Watch
from harness.outside import strike
from harness.required import lacking
from harness.trace import find_trace
from harness.watchdog import chain_of, leave_to_watchdogs
from harness.worker.environment import DUMP_PREFIX

LAUNCHER_START_LIMIT_S = 120.0
STOP_LIMIT_S = 4.0
SAMPLE_OVER_S = 2.5
CONCLUDES_S = {"finished": 10.0, "exit": 3.0}
"""How long torch's agent may take to conclude by itself, after its last rank finished or one failed."""

Progress = Callable[[str, str], None]
"""Called with a phase's name and a detail for people."""

DIAGNOSING = threading.Lock()
"""Decoding dumps bounds the memory of this whole process: one at a time, and no launcher starts meanwhile."""


@dataclass(frozen=True)
class RunResult:
    """What one drill came to."""

    plan: RunPlan
    bundle: Path
    result: Result
    verdict: Verdict
    seconds: Seconds
    notice: str
    steps: int
    chain: WatchdogChain | None = None
    page: PageReport | None = None


@dataclass
class Experiment:
    """One drill. `run` it once; whatever happens, no rank is left and the bundle stays readable."""

    plan: RunPlan
    client: LauncherClient
    progress: Progress = lambda phase, detail: None
    stop: threading.Event = field(default_factory=threading.Event)
    """Set it from any thread to interrupt the run."""
    _agent: int | None = None
    _watch: Watch | None = None
    _cgroup: MemoryCgroup | None = None
    _job_path: JobDumpPath | None = None
    _struck: bool = False
    _sampling: RepeatedSampling | None = None
    _reported: bool = False
    _companion: Companion = field(default_factory=NoCompanion)
    _started_s: float = field(default_factory=time.monotonic)
    _writer: BundleWriter = field(init=False)

    def run(self) -> RunResult:
        """Run the drill to its verdict.

        Raises:
            PrerequisiteError: the machine lacks what the drill needs, the bundle cannot be written, or the
                launcher cannot start.
            Interrupted: a signal came; ranks are stopped and the bundle kept.
        """
        started = time.time()
        for need in self.plan.mode.needs:
            if reason := why_not(need):
                raise PrerequisiteError(f"{self.plan.spec.name} {self.plan.mode.name}: {reason}")
        companion = companion_of(self.plan)
        self._writer = self._create_bundle()
        self._companion = companion
        try:
            companion.start(self._writer, self.progress)
            notice = self._observe(started)
        finally:
            self._stop()
        return self._conclude(started, notice)

    @property
    def bundle(self) -> Path:
        """The run's folder."""
        return self._writer.layout.root

    @property
    def _on_gpus(self) -> bool:
        """Whether ranks compute on cards, whose own state is evidence too."""
        return self.plan.backend == "nccl"

    def _create_bundle(self) -> BundleWriter:
        root = fresh_folder(self.plan.out / bundle_name(self.plan.spec))
        plan = self.plan
        manifest = Manifest(
            world_size=plan.nproc,
            backend=plan.backend,
            launcher=plan.launcher,
            created=time.time(),
            host=platform.node(),
            versions=versions(),
            environment={**relevant_environment(os.environ), **plan.env},
            notes=plan.notes,
        )
        writer = BundleWriter(root, manifest)
        try:
            writer.create(
                RunRecord(plan.spec.name, plan.mode.name, plan.culprits, plan.parameters, plan.expectation)
            )
        except OSError as error:
            raise PrerequisiteError(
                f"{root}: {error.strerror}: give a folder that you can write with --out"
            ) from None
        point_latest(root)
        return writer

    def _observe(self, started: float) -> Notice:
        self.progress("launch", f"{self.plan.nproc} ranks, {self.plan.backend}")
        if self._on_gpus:
            Collector(self._writer, 0).hardware("before")
        self._launch()
        self._writer.phase("launched")
        exec_start = self.plan.launcher == "torchrun"
        left = max(1.0, self.plan.timeout_s - (time.time() - started))
        notices: list[Notice] = []
        for attempt in range(self.plan.max_restarts + 1):
            if self._watch is not None:
                self._watch.close()
            self._watch = Watch(
                self._writer,
                self.plan.nproc,
                join_limit_s(self.plan.nproc, exec_start),
                left,
                on_phase=lambda phase: self.progress(phase, f"{self.plan.nproc} ranks"),
                attempt=attempt,
                first_step_s=first_step_floor_s(self.plan.nproc, self.plan.backend),
            )
            notice = self._wait_for_trouble(self._watch)
            notices.append(notice)
            if notice.kind != "exit" or self._agent is None:
                break
        if notice.kind in CONCLUDES_S and self._agent is not None:
            # After a failure torch's agent stops the rest and says in its own words what it saw.
            ended = wait_for_end(self.client, self._agent, CONCLUDES_S[notice.kind])
            self._agent = self._agent if ended is None else None
        self._writer.phase("collected")
        return next((n for n in notices if n.trouble), notice)

    def _wait_for_trouble(self, watch: Watch) -> Notice:
        """Wait for a notice and collect. A stall in which a second look sees movement was none."""
        while True:
            notice = self._wait_for_notice(watch)
            self._end_sampling()
            self._writer.notice(f"{notice.kind}: {notice.detail}")
            self._writer.event("noticed", detail=f"{notice.kind}: {notice.detail}")
            self._writer.phase("noticed")
            self.progress("notice", notice.detail)
            steps = watch.steps
            if notice.trouble:
                self._collect(watch)
            if notice.kind != "stall" or not (watch.moved_since(steps) or self._threads_moved(watch)):
                return notice
            self._writer.event("moved on", detail="a slow step, no stall")
            self.progress("steps", "a slow step, no stall: watching on")
            watch.calm_down()
            Collector(self._writer, watch.attempt).resume()

    def _threads_moved(self, watch: Watch) -> bool:
        """Whether most main threads are elsewhere in a second sampling: a slow step, then, and no hang."""
        Collector(self._writer, watch.attempt).stacks(dict(watch.pids), sampling=1)
        folder = self._writer.layout.stacks / f"attempt_{watch.attempt}"
        first, second = (read_sampling(folder / str(i), self.bundle)[0] for i in (0, 1))
        return movement(first, second).moving

    def _launch(self) -> None:
        self.client.start()
        plan, root = self.plan, self._writer.layout.root.resolve()
        layout = Layout(root)
        self._job_path = JobDumpPath.of(plan.job_env, layout, plan.nproc)
        if self._job_path is not None:
            self._job_path.prepare()
        prefix = self._job_path.prefix if self._job_path else str(layout.dump_prefix(0))
        request = LaunchRequest(
            bundle=str(root),
            script=str(plan.spec.script),
            argv=plan.argv,
            nproc=plan.nproc,
            start="fork" if plan.launcher == "fork" else "exec",
            run_id=secrets.token_hex(4),
            max_restarts=plan.max_restarts,
            network_namespace="network_namespace" in plan.mode.needs,
            preload=plan.spec.preload,
            env={
                **plan.env,
                **self._memory_limit(),
                "TORCH_FR_DUMP_TEMP_FILE": prefix,
                **({DUMP_PREFIX: prefix} if self._job_path else {}),
                "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(layout.pipe_prefix),
            },
        )
        layout.dump_prefix(0).parent.mkdir(parents=True, exist_ok=True)
        self.client.send(request)
        deadline = time.monotonic() + LAUNCHER_START_LIMIT_S
        while time.monotonic() < deadline:
            self._heed_stop()
            for message in self.client.receive(POLL_S):
                if message.event == "started":
                    self._agent = message.pid
                    self._writer.event("launched", detail=f"agent {message.pid}")
                    return
        raise PrerequisiteError(
            f"the launcher did not start within {LAUNCHER_START_LIMIT_S:g} s: is torch importable?"
        )

    def _wait_for_notice(self, watch: Watch) -> Notice:
        plan, shown = self.plan, 0
        while True:
            self._heed_stop()
            notice = watch.poll()
            self._companion.look(watch)
            if notice is not None and not self._companion.holds(notice):
                return notice
            if watch.steps // plan.nproc != shown:
                shown = watch.steps // plan.nproc
                self.progress("steps", f"{shown} done")
            past = shown > _number(plan.parameters.get("at", 0))
            if plan.mode.outside and not self._struck and past:
                self._strike_from_outside(plan.mode.outside, watch)
            if plan.mode.samples and self._sampling is None and past:
                self._sampling = RepeatedSampling(
                    self._writer.layout, watch.attempt, dict(watch.pids), plan.mode.samples, SAMPLE_OVER_S
                )
                self._sampling.start()
            for message in self.client.receive(POLL_S):
                if message.event == "ended" and message.pid == self._agent:
                    self._agent = None
                    return watch.poll() or Notice(
                        "exit", time.time(), "the launcher's agent ended before its ranks did"
                    )

    def _memory_limit(self) -> dict[str, str]:
        """The variable that names the drill's memory-limited cgroup, made now; empty if it needs none."""
        if "memory_cgroup" not in self.plan.mode.needs:
            return {}
        self._cgroup = MemoryCgroup.create()
        return {"DRILL_CGROUP": str(self._cgroup.folder)}

    def _strike_from_outside(self, what: str, watch: Watch) -> None:
        """Do to the whole job what an operator, a batch system or a closing terminal does."""
        self._struck = True
        assert self._agent is not None
        self._writer.injected(what, watch.steps // self.plan.nproc)
        strike(what, self._agent, tuple(watch.pids.values()), self._writer.layout.launcher_log)

    def _heed_stop(self) -> None:
        if self.stop.is_set():
            raise Interrupted(f"interrupted; ranks stopped, bundle kept: {self.bundle}")

    def _collect(self, watch: Watch) -> None:
        self.progress("collect", "stacks and flight recorder dumps")
        collector = Collector(self._writer, watch.attempt)
        alive = dict(watch.pids)
        collector.stacks(alive, sampling=0)
        self._heed_stop()
        if self.plan.watchdog:
            leave_to_watchdogs(self.plan, self._writer, watch, self.progress, self._heed_stop)
        else:
            collector.dumps(alive)
        collector.safe()

    def _end_sampling(self) -> None:
        """Stop sampling stacks of a job that ran on, and note in the manifest what was taken."""
        if self._sampling is not None and not self._reported:
            self._reported = True
            self._sampling.stop()
            self._sampling.report(self._writer)

    def _stop(self) -> None:
        """Stop whatever still runs: the agent gently, then everything by SIGKILL."""
        self._end_sampling()
        self._companion.stop()
        if self._agent is not None:
            self._writer.event("stopping")
            self._writer.stopped()
            agent, self._agent = self._agent, None
            with suppress(ProcessLookupError):
                os.kill(agent, signal.SIGTERM)
            ended = None
            with suppress(LauncherDied):
                ended = wait_for_end(self.client, agent, STOP_LIMIT_S)
            if ended is None:
                kill_tree(agent)
        if self._watch is not None:
            for pid in self._watch.pids.values():
                kill_tree(pid)
            self._watch.close()
            collector = Collector(self._writer, self._watch.attempt)
            collector.rank_map(self.plan.nproc)
            if self._on_gpus:
                collector.hardware("after")
            collector.kernel_log(self._started_s, wanted=self._on_gpus)
        if self._cgroup is not None:
            self._cgroup.remove()
        for why in self._job_path.settle() if self._job_path else ():
            self._writer.not_collected("flight recorder", why)
        _clear(self._writer.layout.live)
        self._writer.phase("stopped")

    def _conclude(self, started: float, notice: Notice) -> RunResult:
        self.progress("diagnose", "")
        for lost in self._writer.lost:
            self._writer.not_collected(lost.what, lost.why)
        with DIAGNOSING:
            result = diagnose(self.bundle, world_size=self.plan.nproc)
        diagnosed = time.time()
        self._writer.save(self._writer.layout.diagnosis, result.diagnosis)
        self._writer.phase("diagnosed")
        reader = BundleReader(self._writer.layout)
        injections = reader.injections()
        fired = min((i.t for i in injections if i.event == "fired"), default=None)
        joined = self._watch.joined_at if self._watch else None
        seconds = durations(started, joined, fired, notice.at, diagnosed)
        chain = chain_of(self.plan, self._writer)
        observed = Observed(
            notice.kind,
            self.plan.culprits,
            injections,
            lacking(self._writer, self.plan),
            seconds.fault_to_diagnosis,
            self._trace(),
            chain,
        )
        verdict = judge(result.diagnosis, self.plan.expectation, observed)
        page = self._companion.report()
        if page is not None:
            verdict = with_page(verdict, page)
            self._writer.save(self._writer.layout.page, page)
        self._writer.save(self._writer.layout.verdict, verdict)
        self._writer.phase("judged")
        steps = self._watch.steps // self.plan.nproc if self._watch else 0
        return RunResult(
            self.plan,
            self.bundle,
            result,
            verdict,
            seconds,
            f"{notice.kind}: {notice.detail}",
            steps,
            chain,
            page,
        )

    def _trace(self) -> str | None:
        """What the fault left behind itself."""
        with DIAGNOSING:
            return find_trace(self._writer.layout, self.plan.expectation.trace, self.plan.culprits)


def _clear(folder: Path) -> None:
    """Remove pipes and registrations; ranks.json has what they said."""
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def _number(value: ParameterValue) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
