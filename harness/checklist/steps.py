"""One step of an item: a drill end to end, a probe or a command with its figures, or a person's documents."""

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.catalog.find import find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.checklist.catalogue import PROBES
from harness.checklist.measured import measured
from harness.checklist.papers import looked_at
from harness.checklist.surroundings import NEEDED, PREVIOUS, Surroundings, title_of
from harness.experiment import Experiment, RunResult
from harness.jobenv import relevant
from harness.model.checklist import Checklist, Item, ItemOutcome, Step, StepResult
from harness.model.errors import Interrupted, PrerequisiteError, UsageError
from harness.model.plan import RunPlan
from harness.model.verdict import Outcome
from harness.sharing import without_sharing
from harness.worker.environment import REQUIRED_GPUS

_OUTCOMES = {
    Outcome.PASS: ItemOutcome.PASS,
    Outcome.FAIL: ItemOutcome.FAIL,
    Outcome.INCONCLUSIVE: ItemOutcome.INCONCLUSIVE,
}


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
    run = {"drill": _drill, "probe": _probe, "command": _command, "manual": looked_at}[step.kind]
    required = {} if rehearsed or not item.needs else {REQUIRED_GPUS: str(NEEDED[item.needs])}
    extra = {**around.extra, **required, **({PREVIOUS: str(Path(previous).resolve())} if previous else {})}
    result = run(step, dataclasses.replace(around, extra=extra))
    # Eight ranks on four cards, say: a drill that could run on nccl took gloo all the same.
    stood_in = item.needs is not None and bool(result.figures.get("stood_in"))
    if (rehearsed or stood_in) and result.outcome is ItemOutcome.PASS:
        result = dataclasses.replace(result, outcome=ItemOutcome.REHEARSED)
    return dataclasses.replace(result, seconds=round(time.monotonic() - begun, 3))


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
    return measured(step, command, around)


def _command(step: Step, around: Surroundings) -> StepResult:
    return measured(step, step.command, around)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)
