"""A drill and its settings to a plan: everything decided before anything starts."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

from harness.model.errors import PrerequisiteError, UsageError
from harness.model.plan import RunPlan, Setting
from harness.model.ranks import format_ranks
from harness.model.spec import DrillSpec, Expectation, Mode
from harness.observe.gpus import gpu_count


def plan_run(spec: DrillSpec, settings: Mapping[str, Setting]) -> RunPlan:
    """Decide mode, culprits, backend, launcher, arguments and environment.

    Raises:
        UsageError: a mode or culprit that cannot be.
        PrerequisiteError: a backend that this machine does not have.
    """
    nproc = _int(settings["nproc"])
    mode = _mode(spec, settings["mode"])
    culprits = _culprits(spec, mode, settings["culprit"], nproc)
    backend, reason = _backend(spec, str(settings["backend"].value), nproc)
    parameters = {
        name: value
        for name in spec.parameters
        if isinstance(value := settings[name].value, (int, float, str, bool))
    }
    launcher = str(settings["launcher"].value)
    if launcher == "auto":
        launcher = "fork" if backend == "gloo" else "torchrun"
    if launcher == "fork" and backend == "nccl":
        raise UsageError("--launcher fork: CUDA does not survive a fork; use --launcher torchrun")
    argv = [
        *(("--culprit", ",".join(map(str, culprits))) if culprits else ()),
        *(("--mode", mode.name) if len(spec.modes) > 1 else ()),
        *("--backend", backend),
        *(w for k, v in parameters.items() for w in (f"--{k.replace('_', '-')}", str(v))),
    ]
    return RunPlan(
        spec=spec,
        mode=mode,
        nproc=nproc,
        culprits=culprits,
        backend=backend,
        backend_reason=reason,
        launcher=launcher,
        timeout_s=float(str(settings["timeout"].value)),
        parameters=parameters,
        settings=settings,
        expectation=_expectation(mode, culprits, nproc, bool(settings["detail"].value)),
        argv=tuple(argv),
        env=_environment(backend, bool(settings["detail"].value), _int(settings["max_restarts"])),
        out=Path(str(settings["out"].value)),
        max_restarts=_int(settings["max_restarts"]),
    )


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


def _backend(spec: DrillSpec, wanted: str, nproc: int) -> tuple[str, str]:
    gpus = gpu_count()
    if wanted == "auto":
        if "nccl" in spec.backends and gpus >= nproc:
            return "nccl", f"{gpus} GPUs for {nproc} ranks"
        why = f"{gpus} GPUs for {nproc} ranks" if gpus else "no GPU on this machine"
        return "gloo", why
    if wanted not in spec.backends:
        allowed = ", ".join(spec.backends)
        raise UsageError(f"--backend {wanted}: {spec.name} runs on {allowed}")
    if wanted == "nccl" and gpus < nproc:
        raise PrerequisiteError(
            f"--backend nccl: {nproc} ranks need {nproc} GPUs and this machine has {gpus}; "
            "use --backend gloo for a rehearsal on CPUs"
        )
    return wanted, "asked for"


def _environment(backend: str, detail: bool, max_restarts: int) -> dict[str, str]:
    """Variables that ranks get beside the bundle's own paths."""
    extra = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if detail else {}
    if max_restarts:
        # torch 2.13 hands the next attempt the same store, in which gloo finds the addresses of the dead.
        extra["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    env = {
        # The ranks' exits are noted and waited for by us; torch's own 30 s would only delay the end.
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2",
    }
    if backend == "gloo":
        # All ranks are on this machine: do without the host's name, which a container may not resolve.
        env["GLOO_SOCKET_IFNAME"] = "lo"
    else:
        # torchrun would set 1, under which the watchdog does not dump.
        env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3"
        env["TORCH_FR_BUFFER_SIZE"] = "20000"
    return {**env, **extra}


def _int(setting: Setting) -> int:
    assert isinstance(setting.value, int)
    return setting.value
