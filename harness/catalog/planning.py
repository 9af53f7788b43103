"""A drill and its settings to a plan: everything decided before anything starts."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

from harness.catalog.backend import NOT_EXERCISED, choose_backend
from harness.catalog.environment import Conditions, compose, watchdog_limit_s
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.plan import RunPlan, Setting
from harness.model.ranks import format_ranks
from harness.model.spec import DrillSpec, Expectation, Mode, ParameterValue
from harness.observe.machine import Machine, look

FAITHFUL = "production fidelity: what torch and NCCL read is as the job's own environment has it"


def plan_run(
    spec: DrillSpec,
    settings: Mapping[str, Setting],
    job_env: Mapping[str, str] | None = None,
    machine: Machine | None = None,
) -> RunPlan:
    """Decide mode, culprits, backend, launcher, arguments and environment.

    `job_env`: the variables of the real job, which then count instead of a drill's (production fidelity).
    `machine`: what ranks can run on; this one unless given.

    Raises:
        UsageError: a mode or culprit that cannot be.
        PrerequisiteError: a backend that this machine does not have.
    """
    machine = look() if machine is None else machine
    nproc = _int(settings["nproc"])
    mode = _mode(spec, settings["mode"])
    culprits = _culprits(spec, mode, settings["culprit"], nproc)
    share, detail = bool(settings["share_gpu"].value), bool(settings["detail"].value)
    backend = choose_backend(spec, str(settings["backend"].value), share, nproc, machine)
    if "gpu" in mode.needs and backend.name != "nccl":
        raise PrerequisiteError(f"{spec.name} {mode.name}: needs nccl and a GPU: {backend.reason}")
    watchdog = bool(settings["wait_for_watchdog"].value)
    if watchdog and backend.name != "nccl":
        raise PrerequisiteError(
            f"--wait-for-watchdog: gloo has no watchdog; nccl not taken: {backend.reason}"
        )
    parameters = _parameters(spec, settings, backend.shared)
    argv = [
        *(("--culprit", ",".join(map(str, culprits))) if culprits else ()),
        *(("--mode", mode.name) if len(spec.modes) > 1 else ()),
        *("--backend", backend.name),
        *(
            w
            for k, v in parameters.items()
            if not spec.parameters[k].ours
            for w in (f"--{k.replace('_', '-')}", str(v))
        ),
    ]
    conditions = Conditions(
        backend=backend.name,
        torch=machine.torch,
        shared=backend.shared,
        detail=detail,
        max_restarts=_int(settings["max_restarts"]),
        watchdog=watchdog,
        job=job_env,
    )
    env = compose(conditions)
    expectation = _expectation(mode, culprits, nproc, detail)
    if watchdog and expectation.within_s is not None:
        expectation = dataclasses.replace(expectation, within_s=expectation.within_s + watchdog_limit_s(env))
    return RunPlan(
        spec=spec,
        mode=mode,
        nproc=nproc,
        culprits=culprits,
        backend=backend.name,
        backend_reason=backend.reason,
        launcher=_launcher(str(settings["launcher"].value), backend.name),
        timeout_s=float(str(settings["timeout"].value)),
        parameters=parameters,
        settings=settings,
        expectation=expectation,
        argv=tuple(argv),
        env=env,
        out=Path(str(settings["out"].value)),
        max_restarts=_int(settings["max_restarts"]),
        shared=backend.shared,
        watchdog=watchdog,
        notes=(*((NOT_EXERCISED,) if backend.shared else ()), *((FAITHFUL,) if job_env is not None else ())),
        job_env=job_env,
    )


def _launcher(wanted: str, backend: str) -> str:
    if wanted == "auto":
        return "fork" if backend == "gloo" else "torchrun"
    if wanted == "fork" and backend == "nccl":
        raise UsageError("--launcher fork: CUDA does not survive a fork; use --launcher torchrun")
    return wanted


def _parameters(spec: DrillSpec, settings: Mapping[str, Setting], shared: bool) -> dict[str, ParameterValue]:
    """The drill's own values; those that nobody chose are smaller where all ranks share a card."""
    chosen: dict[str, ParameterValue] = {}
    for name, parameter in spec.parameters.items():
        setting = settings[name]
        small = parameter.shared if shared and setting.origin == "default" else None
        value = setting.value if small is None else small
        if isinstance(value, (int, float, str, bool)):
            chosen[name] = value
    return chosen


def bundle_name(spec: DrillSpec, now: float | None = None) -> str:
    """``<time>-<drill>``, local time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{spec.name}"


def _mode(spec: DrillSpec, setting: Setting) -> Mode:
    name = str(setting.value)
    if name not in spec.modes:
        raise UsageError(
            f"{setting.origin} {name}: {spec.name} has no such mode; it has: {', '.join(spec.modes)}"
        )
    return spec.modes[name]


def _culprits(spec: DrillSpec, mode: Mode, setting: Setting, nproc: int) -> tuple[int, ...]:
    culprits = setting.value
    assert isinstance(culprits, tuple)
    origin = "--culprit (default)" if setting.origin == "default" else setting.origin
    if not spec.culprit:
        if culprits:
            raise UsageError(f"{setting.origin}: {spec.name} breaks no rank; leave it out")
        return ()
    if mode.expect.accused == "nobody":
        return ()
    if setting.origin == "default" and max(culprits) >= nproc:
        culprits = (nproc - 1,)
    if not culprits:
        raise UsageError(f"{origin}: {spec.name} needs at least one culprit")
    if max(culprits) >= nproc:
        raise UsageError(
            f"{origin} {format_ranks(culprits)}: outside the world; "
            f"with {nproc} ranks 0-{nproc - 1} are allowed"
        )
    if 2 * len(culprits) >= nproc and not (nproc == 2 and mode.tie):
        raise UsageError(
            f"{origin} {format_ranks(culprits)}: {len(culprits)} of {nproc} ranks is half or "
            "more; nobody could tell who is odd"
        )
    return culprits


def _expectation(mode: Mode, culprits: tuple[int, ...], nproc: int, detail: bool) -> Expectation:
    if mode.tie is not None and culprits and 2 * len(culprits) >= nproc:
        return dataclasses.replace(mode.tie, ranks=tuple(range(nproc)))
    expected = mode.detail if detail and mode.detail else mode.expect
    if detail:
        # torch compares before it issues: what would differ is never on record.
        expected = dataclasses.replace(expected, trace=None)
    return dataclasses.replace(expected, ranks=_with_partners(culprits, expected.offsets, nproc))


def _with_partners(culprits: tuple[int, ...], offsets: tuple[int, ...], nproc: int) -> tuple[int, ...]:
    """The culprits and who else the evidence cannot tell from them."""
    ranks = set(culprits)
    for rank in culprits:
        ahead = {rank + offset for offset in offsets if 0 <= rank + offset < nproc}
        ranks |= ahead or {rank - offset for offset in offsets if 0 <= rank - offset < nproc}
    return tuple(sorted(ranks))


def _int(setting: Setting) -> int:
    assert isinstance(setting.value, int)
    return setting.value
