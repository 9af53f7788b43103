"""Which back end a run takes, and why: said before it starts and in its report."""

from dataclasses import dataclass

from harness.model.errors import PrerequisiteError, UsageError
from harness.model.spec import DrillSpec
from harness.observe.machine import Machine

NOT_EXERCISED = (
    "all ranks share one GPU and talk through sockets: links between cards (NVLink, PCIe, InfiniBand) "
    "were not exercised"
)


@dataclass(frozen=True)
class Backend:
    """gloo or nccl; `shared`: all ranks on one card; `reason` in words for people."""

    name: str
    reason: str
    shared: bool = False


def choose_backend(spec: DrillSpec, wanted: str, share: bool, nproc: int, machine: Machine) -> Backend:
    """Take NCCL where there are cards for all ranks, or one card for all to share; else gloo.

    `wanted` is auto, gloo or nccl; `share` puts all ranks on one card even where there are more.

    Raises:
        UsageError: the drill does not run on what is wanted, or the wishes contradict each other.
        PrerequisiteError: this machine lacks what is wanted.
    """
    if share and wanted == "gloo":
        raise UsageError("--share-gpu puts NCCL ranks on one card: it does not go with --backend gloo")
    if wanted != "auto" and wanted not in spec.backends:
        allowed = ", ".join(spec.backends)
        raise UsageError(f"--backend {wanted}: {spec.name} runs on {allowed}")
    if wanted == "gloo":
        return Backend("gloo", "asked for")
    if "nccl" not in spec.backends:
        if share:
            raise UsageError(f"--share-gpu: {spec.name} runs on {', '.join(spec.backends)}")
        none = "no GPU on this machine"
        return Backend(
            "gloo", f"{_gpus(machine)}, but {spec.name} runs on gloo only" if machine.gpus else none
        )
    if wanted == "nccl" or share:
        return _nccl(wanted, share, nproc, machine)
    return _whatever_fits(spec, nproc, machine)


def _nccl(wanted: str, share: bool, nproc: int, machine: Machine) -> Backend:
    """NCCL, or nothing."""
    flag = "--share-gpu" if share else f"--backend {wanted}"
    rehearse = "use --backend gloo for a rehearsal on CPUs"
    if machine.gpus and machine.cuda is None:
        raise PrerequisiteError(f"{flag}: {machine.why_no_nccl}: install a CUDA build, or {rehearse}")
    if share:
        if not machine.gpus:
            raise PrerequisiteError(f"{flag}: {machine.why_no_nccl}; {rehearse}")
        return Backend("nccl", f"asked for: {nproc} ranks share one of {_gpus(machine)}", shared=nproc > 1)
    if machine.gpus < nproc:
        sharing = "use --share-gpu to put all on one, or " if machine.gpus else ""
        needed = f"{nproc} ranks need {nproc} GPUs and this machine has {machine.gpus}"
        raise PrerequisiteError(f"{flag}: {needed}; {sharing}{rehearse}")
    return Backend("nccl", f"asked for; {_gpus(machine)} for {nproc} ranks")


def _whatever_fits(spec: DrillSpec, nproc: int, machine: Machine) -> Backend:
    found = f"{_gpus(machine)} for {nproc} ranks"
    missing = machine.why_no_nccl
    if missing is None and machine.gpus >= nproc:
        return Backend("nccl", found)
    if missing is None and machine.gpus == 1:
        return Backend("nccl", f"{found}, which share it", shared=True)
    reason = missing or f"{found} are too few; --share-gpu puts all on one"
    if "gloo" not in spec.backends:
        raise PrerequisiteError(f"{spec.name} runs on {', '.join(spec.backends)}: {reason}")
    return Backend("gloo", reason)


def _gpus(machine: Machine) -> str:
    return f"{machine.gpus} GPU{'' if machine.gpus == 1 else 's'}"
