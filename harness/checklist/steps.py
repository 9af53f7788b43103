"""One step of an item: a drill end to end, a probe or a command with its figures, or a person's documents."""

import dataclasses
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from glob import glob
from pathlib import Path

from harness.bundle.folders import fresh_folder
from harness.catalog.find import find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.checklist.catalogue import PROBES
from harness.checklist.expressions import ExpressionError, holds, names_in
from harness.experiment import Experiment, Progress, RunResult
from harness.interrupts import signals_call
from harness.jobenv import JobEnvironment, relevant
from harness.launch.client import LauncherClient
from harness.model.checklist import Checklist, Figure, Item, ItemOutcome, Step, StepResult
from harness.model.errors import Interrupted, PrerequisiteError, UsageError
from harness.model.plan import RunPlan
from harness.model.verdict import Outcome
from harness.observe.gpus import gpu_count
from harness.observe.processes import kill_tree
from harness.sharing import without_sharing
from harness.worker.environment import REQUIRED_GPUS
from harness.worker.lifeline import die_with_parent

_OUTCOMES = {
    Outcome.PASS: ItemOutcome.PASS,
    Outcome.FAIL: ItemOutcome.FAIL,
    Outcome.INCONCLUSIVE: ItemOutcome.INCONCLUSIVE,
}
JOB_FILES, RESULTS, PREVIOUS = "DRILL_JOB_FILES", "DRILL_RESULTS", "DRILL_PREVIOUS_BUNDLE"
"""What probes are told: the job's own files, where results are, the bundle of the step before."""

NEEDED = {None: 0, "gpu": 1, "gpus": 2}
POLL_S = 0.1
MAX_OUTPUT_BYTES = 1 << 20
MAX_BITS = 128
"""A larger number is no measurement, and nobody wants to read it."""
UNABLE = 4
"""A probe that ends with this code lacks something on this machine, as `drill` itself does."""


@dataclass
class Surroundings:
    """What all steps of a run share; `open` makes them."""

    job: JobEnvironment
    bundles: Path
    client: LauncherClient
    drills_dirs: tuple[Path, ...] = ()
    backend: str = "auto"
    progress: Progress = lambda phase, detail: None
    stop: threading.Event = field(default_factory=threading.Event)
    extra: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def open(
        cls,
        job: JobEnvironment,
        bundles: Path,
        drills_dirs: tuple[Path, ...] = (),
        backend: str = "auto",
        client: LauncherClient | None = None,
    ) -> "Iterator[Surroundings]":
        """Surroundings whose runs a signal stops. Their launcher ends with the block, unless one is given."""
        with nullcontext(client) if client else LauncherClient() as client:
            extra = {
                JOB_FILES: os.pathsep.join(str(Path(name).resolve()) for name in job.files),
                RESULTS: str(bundles.parent.resolve()),
            }
            around = cls(job, bundles, client, drills_dirs, backend, extra=extra)
            with signals_call(around.stop.set):
                yield around

    def equipped(self, item: Item) -> bool:
        """Whether the real thing is here."""
        return equipped(item, self.backend)


def equipped(item: Item, backend: str) -> bool:
    """Whether what an item needs is on this machine, and wanted."""
    return backend != "gloo" and gpu_count() >= NEEDED[item.needs]


def run_step(item: Item, step: Step, around: Surroundings, previous: str | None = None) -> StepResult:
    """Run one step as it is, or its rehearsal where the real thing is not here.

    `previous`: the bundle of the step before it.

    Raises:
        Interrupted: a signal came; whatever ran was stopped.
    """
    begun = time.monotonic()
    rehearsed = not around.equipped(item)
    if rehearsed:
        if step.rehearsal is None:
            why = f"needs {'two GPUs' if item.needs == 'gpus' else 'a GPU'}, and cannot be rehearsed"
            return StepResult(title_of(step), ItemOutcome.NOT_RUN, why)
        step = step.rehearsal
    run = {"drill": _drill, "probe": _probe, "command": _command, "manual": _manual}[step.kind]
    required = {} if rehearsed or not item.needs else {REQUIRED_GPUS: str(NEEDED[item.needs])}
    extra = {**around.extra, **required, **({PREVIOUS: str(Path(previous).resolve())} if previous else {})}
    result = run(step, dataclasses.replace(around, extra=extra))
    # Eight ranks on four cards, say: a drill that could run on nccl took gloo all the same.
    stood_in = item.needs is not None and bool(result.figures.get("stood_in"))
    if (rehearsed or stood_in) and result.outcome is ItemOutcome.PASS:
        result = dataclasses.replace(result, outcome=ItemOutcome.REHEARSED)
    return dataclasses.replace(result, seconds=round(time.monotonic() - begun, 3))


def title_of(step: Step) -> str:
    """What a step is called in reports."""
    if step.kind == "drill":
        whom = f" --culprit {step.culprit}" if step.culprit else ""
        return f"drill {step.name}{f' --mode {step.mode}' if step.mode else ''}{whom}"
    if step.kind == "command":
        return shlex.join(step.command)
    return f"{step.kind} {step.name}" if step.kind == "probe" else step.name


def plan_of(step: Step, around: Surroundings) -> RunPlan:
    """The plan of a drill's step, with the variables that the job will have.

    Raises:
        UsageError: no such drill or mode, or a value that does not fit.
        PrerequisiteError: what it needs is not on this machine.
    """
    spec = find_drill(step.name, list(around.drills_dirs))
    flags = {
        "mode": step.mode,
        "culprit": step.culprit,
        # Of a whole checklist's drills some know one back end only.
        "backend": around.backend if around.backend in spec.backends else "auto",
        "out": str(around.bundles),
    }
    sources = Sources.read(flags, [f"{key}={value}" for key, value in step.parameters.items()])
    job = relevant(around.job.over({})) if around.job.files else None
    return plan_run(spec, settle(spec, sources), job)


def check_drills(checklist: Checklist, items: Sequence[Item], around: Surroundings) -> None:
    """Every drill that would run exists, with such a mode, culprit and parameters.

    Raises:
        UsageError: one does not; with file and line.
    """
    for item in items:
        real = around.equipped(item)
        for step in (step if real else step.rehearsal for step in item.steps):
            if step is None or step.kind != "drill":
                continue
            try:
                plan_of(step, around)
            except UsageError as error:
                raise UsageError(f"{checklist.path}:{step.line}: drill {step.name}: {error}") from None
            except PrerequisiteError:
                # Said by its own result.
                continue


def _drill(step: Step, around: Surroundings) -> StepResult:
    title = title_of(step)
    try:
        plan = plan_of(step, around)
        run = Experiment(plan, around.client, around.progress, around.stop).run()
        if (fewer := without_sharing(run)) is not None:
            run = Experiment(fewer, around.client, around.progress, around.stop).run()
    except Interrupted:
        raise
    except (PrerequisiteError, UsageError) as error:
        return StepResult(title, ItemOutcome.NOT_RUN, str(error))
    return StepResult(
        title=title,
        outcome=_OUTCOMES[run.verdict.verdict],
        why=_why(run),
        figures={
            "fault_to_diagnosis_s": _rounded(run.seconds.fault_to_diagnosis),
            "kind": run.result.diagnosis.kind.value,
            "backend": run.plan.backend,
            "stood_in": run.plan.backend == "gloo" and "nccl" in run.plan.spec.backends,
        },
        shows=("fault_to_diagnosis_s",),
        says=(run.result.diagnosis.summary,),
        bundle=str(run.bundle),
    )


def _why(run: RunResult) -> str:
    """One line: what was diagnosed, or which checks failed."""
    if run.verdict.verdict is Outcome.PASS:
        return run.result.diagnosis.summary
    missed = [
        f"{name.replace('_', ' ')}: expected {check.expected}, found {check.found}"
        for name, check in run.verdict.checks.items()
        if check.ok is False
    ]
    return "; ".join(missed) or run.result.diagnosis.summary


def _probe(step: Step, around: Surroundings) -> StepResult:
    options = [
        word for name, value in step.arguments.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    room = "worker" if PROBES[step.name].torch else "checklist"
    command = (sys.executable, "-m", f"harness.{room}.probes", step.name, *options)
    return _measured(step, command, around)


def _command(step: Step, around: Surroundings) -> StepResult:
    return _measured(step, step.command, around)


def _measured(step: Step, command: tuple[str, ...], around: Surroundings) -> StepResult:
    """Run a program whose last line is a JSON object of figures, and hold them against the criterion."""
    title = title_of(step)
    slug = "".join(c if c.isalnum() else "_" for c in Path(step.name).name)[:40]
    try:
        folder = fresh_folder(around.bundles / f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}").resolve()
    except OSError as error:
        return StepResult(title, ItemOutcome.NOT_RUN, f"{around.bundles}: {error.strerror}")
    environ = {**around.job.over(os.environ), **around.extra, "DRILL_PROBE_OUT": str(folder)}
    try:
        code = _run(command, environ, folder, step.timeout_s, around)
    except OSError as error:
        return StepResult(title, ItemOutcome.NOT_RUN, f"{command[0]}: {error.strerror}", bundle=str(folder))
    if code is None:
        why = f"did not end within {step.timeout_s:g} s, and was stopped"
        return StepResult(title, ItemOutcome.INCONCLUSIVE, why, bundle=str(folder))
    figures, says = _read_figures(folder / "stdout.log")
    if code == UNABLE:
        return StepResult(title, ItemOutcome.NOT_RUN, _last_error(folder), bundle=str(folder))
    if code != 0 or figures is None:
        how = f"ended with code {code}" if code else "printed no JSON object with figures"
        why = f"{how}: {_last_error(folder)}"
        return StepResult(title, ItemOutcome.INCONCLUSIVE, why, bundle=str(folder))
    assert step.passes is not None
    wanted = sorted(names_in(step.passes))
    asked = ", ".join(f"{name} {_shown(figures.get(name))}" for name in wanted)
    try:
        passed = holds(step.passes, figures)
    except ExpressionError as error:
        return StepResult(
            title, ItemOutcome.INCONCLUSIVE, str(error), figures, step.passes, step.shows, says, str(folder)
        )
    outcome = ItemOutcome.PASS if passed else ItemOutcome.FAIL
    shown = [name for name in step.shows or wanted if figures.get(name) not in (None, "")]
    why = ", ".join(f"{name} {_shown(figures[name])}" for name in shown)
    if not passed:
        why = f"{asked}; wanted: {step.passes}"
    if not passed and says:
        why = f"{says[0]} ({why})"
    return StepResult(title, outcome, why, figures, step.passes, step.shows, says, str(folder))


def _run(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    folder: Path,
    timeout_s: float,
    around: Surroundings,
) -> int | None:
    """Its exit code, or None where it had to be stopped. Nothing of it is left running."""
    guard = _guard()
    try:
        with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environ,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
    except OSError:
        guard.communicate()
        raise
    # Right away: the guard is up already, so that hardly a moment is left in which nobody watches.
    assert guard.stdin is not None
    guard.stdin.write(b"%d\n" % process.pid)
    guard.stdin.flush()
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline and not around.stop.is_set():
            try:
                return process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        _end(process)
        guard.kill()
        guard.communicate()
    if around.stop.is_set():
        raise Interrupted(f"interrupted; {command[0]} was stopped")
    return None


def _guard() -> "subprocess.Popen[bytes]":
    """Ends the session that it is told once we are gone: the kernel tells its first process only."""
    script = 'read -r session && { read -r _; kill -s KILL -- "-$session" 2>/dev/null; }'
    return subprocess.Popen(("/bin/sh", "-c", script), stdin=subprocess.PIPE, start_new_session=True)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop what is left of a program and of all that it started in its session."""
    if process.poll() is None:
        kill_tree(process.pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_figures(path: Path) -> tuple[dict[str, Figure] | None, tuple[str, ...]]:
    """The figures of the last line that looks like a JSON object, and the sentences under its key ``says``.

    None where that line is none: it may have been cut off, and what stands above it is not the last word.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MAX_OUTPUT_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        # The command took its own folder away.
        return None, ()
    for line in reversed(lines):
        if not line.startswith("{"):
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return None, ()
        said = document.pop("says", [])
        says = tuple(str(_figure(s)) for s in (said[:20] if isinstance(said, list) else [said]))
        return {str(name): _figure(value) for name, value in document.items()}, says
    return None, ()


def _figure(value: object) -> Figure:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return math.inf if value > 0 else -math.inf
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    # JSON may hold halves of characters, which no terminal and no file takes.
    return text[:400].encode(errors="replace").decode()


def _last_error(folder: Path) -> str:
    for name in ("stderr.log", "stdout.log"):
        try:
            data = (folder / name).read_bytes()[-MAX_OUTPUT_BYTES:].decode(errors="replace")
        except OSError as error:
            return f"{folder / name}: {error.strerror}"
        lines = [line.strip() for line in data.splitlines() if line.strip()]
        if lines:
            return lines[-1][:400]
    return "it said nothing"


def _shown(value: Figure) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "none" if value == "" else str(value)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _manual(step: Step, around: Surroundings) -> StepResult:
    """What a machine can see of what a person answers for: that the documents are there, and new enough."""
    for demand in step.files:
        try:
            why = _lacking(demand.path, demand.newer_than, demand.max_age_s)
        except OSError as error:
            why = f"{demand.path}: {error.strerror}"
        if why:
            return StepResult(step.name, ItemOutcome.FAIL, why)
    seen = ", ".join(demand.path for demand in step.files)
    why = f"waits for a signature{f'; there and new enough: {seen}' if seen else ''}"
    return StepResult(step.name, ItemOutcome.NOT_RUN, why)


def _lacking(name: str, newer_than: str | None, max_age_s: float | None) -> str | None:
    path = Path(name)
    if not path.is_file():
        return f"there is no {name}"
    if not path.read_bytes().strip():
        return f"{name} is empty"
    written = path.stat().st_mtime
    if max_age_s is not None and time.time() - written > max_age_s:
        return f"{name} was last changed {(time.time() - written) / 86400:.0f} days ago"
    # Not pathlib's: that one refuses what begins with a slash.
    others = sorted(glob(newer_than, recursive=True)) if newer_than else []  # noqa: PTH207
    for other in map(Path, others):
        if other != path and other.is_file() and other.stat().st_mtime > written:
            return f"{name} is older than {other}: what was learned there is not in it"
    return None
