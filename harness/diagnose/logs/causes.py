"""What to change, and where to look next, for a job that is over or hangs and left nothing but its logs."""

import re
from collections.abc import Mapping, Sequence

from harness.diagnose.logs import causes_advice as advice
from harness.model.diagnosis import Recommendation, Where
from harness.model.kinds import DIVERGED, Kind
from harness.model.ranks import format_ranks

MAX_HOSTS = 4
"""Hosts that commands are written out for."""


_RECORDER = (
    "export TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_TRACE_BUFFER_SIZE=20000   # next start, older torch too",
    "export TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_NCCL_ASYNC_ERROR_HANDLING=3   # next start; torchrun sets 1",
    "export TORCH_FR_DUMP_TEMP_FILE=/persistent/path/rank_   # next start",
    "export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/persistent/path/rank_   # next start, older torch",
)
_TITAN_RECORDER = "# next start: --comm.trace_buf_size 20000; dumps go where --comm.save_traces_folder says"
"""torchtitan overrides the recorder's variables from its own configuration (its distributed/utils.py)."""
_DETAIL = (
    "export TORCH_DISTRIBUTED_DEBUG=DETAIL   # next start, on few ranks: it compares every collective first"
)
_NCCL = "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET   # next start"
_KERNEL = "dmesg -T | grep -i -E 'xid|nvrm|killed|oom'"
_SLURM = "sacct -j JOBID --format=JobID,State,ExitCode,End,NodeList"
_STACKS = "for p in $(pgrep -f TRAINING_SCRIPT); do py-spy dump --nonblocking --pid $p; done"
_ON_HOSTS: Mapping[Kind, tuple[str, ...]] = {
    Kind.HARDWARE_FAULT: ("nvidia-smi -q -d ECC,ROW_REMAPPER", _KERNEL, "nvidia-smi nvlink -e"),
    Kind.DEVICE_OOM: ("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",),
    Kind.DEVICE_ASSERT: (_KERNEL,),
    Kind.GPU_STALLED: (_KERNEL, "nvidia-smi -q"),
    Kind.FABRIC_STALLED: ("nvidia-smi nvlink -e", "ibstat", _KERNEL),
    Kind.NODE_LOST: ("journalctl -b -1 -n 200   # the boot before", "last -x reboot shutdown | head"),
    Kind.CHECKPOINT_FAILED: ("df -h CHECKPOINT_PATH", "df -i CHECKPOINT_PATH"),
    Kind.CHECKPOINT_SLOW: ("df -h CHECKPOINT_PATH", "nfsiostat 5 3"),
    Kind.STORAGE_FAILURE: ("dmesg -T | grep -i -E 'nfs|lustre|i/o error'",),
    Kind.DATA_CORRUPT: ("sha256sum FILE   # against its source",),
    Kind.INIT_STUCK: ("nc -vz MASTER_ADDR MASTER_PORT",),
    Kind.RANK_EXITED: (_KERNEL,),
}
_HANGS = frozenset((Kind.RANK_STALLED, Kind.TEARDOWN_HANG, Kind.FABRIC_STALLED, Kind.GPU_STALLED, *DIVERGED))
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-]{0,252}")


def recommend(kind: Kind, where: Where, framework: str | None = None) -> tuple[Recommendation, ...]:
    """What to change, by side; `where.how` and `where.site` choose. Empty where logs cannot show the kind.

    `framework`: as `heads.read_heads` names it; it changes how a switch is spelt, never what is advised.
    """
    found = (*_by_how(kind, where), *advice.RECOMMENDED.get(kind, ()), *_by_site(kind, where, framework))
    return tuple(Recommendation(side, do) for side, do in found)


def look_next(
    kind: Kind,
    ranks: Sequence[int],
    where: Where,
    framework: str | None = None,
    missing_ranks: Sequence[int] = (),
    homes: Mapping[int, str] | None = None,
) -> tuple[str, ...]:
    """Commands that can be pasted: first what is missing, then on hosts, then for the next start.

    `ranks` are accused or suspected; `homes` gives their hosts, where `where.hosts` does not. Names that
    stand in logs reach a command only if they are host names.
    """
    if kind is Kind.HEALTHY:
        return ()
    hosts = _hosts(ranks, where, homes or {})
    steps = [*_fetch(missing_ranks, homes or {})]
    steps += [_on(host, command) for command in _commands(kind, where) for host in hosts or (None,)]
    if kind in (Kind.EXTERNAL_STOP, Kind.NODE_LOST, Kind.RESTART_LOOP, Kind.RANK_EXITED, Kind.INCONCLUSIVE):
        steps.append(_SLURM)
    if kind is Kind.NODE_LOST:
        steps.append(f"scontrol show node {hosts[0] if hosts else 'HOST'}")
    if kind in _HANGS or kind is Kind.INCONCLUSIVE:
        whose = f"rank {format_ranks(ranks)}" if ranks else "every rank"
        steps += [f"{_on(host, _STACKS)}   # {whose}, while it hangs" for host in hosts or (None,)]
    return tuple(dict.fromkeys((*steps, *_next_start(kind, where, framework))))


def _by_how(kind: Kind, where: Where) -> advice.Advice:
    how = where.how or ""
    if kind is Kind.HARDWARE_FAULT:
        return (("hardware", _xid(how)),)
    if kind is Kind.HOST_OOM and how == "shared_memory":
        return (
            ("scheduler", "more /dev/shm: docker --shm-size, or an emptyDir with medium Memory"),
            (
                "training",
                "fewer loader workers, smaller prefetch_factor: batches travel through it",
            ),
        )
    if kind is Kind.HOST_OOM:
        return (
            (
                "training",
                "fewer loader workers and smaller prefetch_factor; no copy of the data set in each worker",
            ),
            ("scheduler", "raise the memory limit (Slurm --mem, the pod's limit) if the node has more"),
        )
    if kind is Kind.DEVICE_ASSERT:
        if "illegal" in how or how in ("xid_31", "xid_13"):
            return (
                ("training", "an access out of bounds in a kernel: the newest own or fused kernel first"),
            )
        return (
            (
                "training",
                "check indices before the kernel does: token ids below the vocabulary, labels below classes",
            ),
        )
    if kind is Kind.RANK_EXITED and how == "finished_early":
        return (("training", advice.EVEN_INPUT),)
    if kind is Kind.RANK_EXITED and where.signal in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"):
        return (("training", "native code crashed: PYTHONFAULTHANDLER=1 shows where, a core dump shows why"),)
    if kind is Kind.EXTERNAL_STOP:
        return _stop(how.lower())
    return ()


def _stop(how: str) -> advice.Advice:
    save = ("training", "save on the warning signal: sbatch --signal=B:USR1@300, and trap it")
    if "limit" in how:
        return (("scheduler", "a longer limit, or a chain of jobs: sbatch --dependency=singleton"), save)
    if "preempt" in how or "requeue" in how:
        return (("scheduler", "a partition or QOS without preemption, or --requeue and resume"), save)
    return (("scheduler", "ask who cancelled it: nothing in the job failed before"),)


def _xid(how: str) -> str:
    number = re.fullmatch(r"xid_(\d{1,4})", how)
    code = int(number[1]) if number else None
    for codes, do in advice.XIDS:
        if code in codes:
            return f"XID {code}: {do}"
    return f"XID {code}: {advice.XID_OTHER}" if code is not None else advice.XID_OTHER


def _by_site(kind: Kind, where: Where, framework: str | None) -> advice.Advice:
    limit = advice.LIMITS.get(framework or "", advice.LIMIT)
    save = advice.ASYNC_SAVES.get(framework or "", advice.ASYNC_SAVE)
    saving = (
        ("training", f"save asynchronously: {save}"),
        ("storage", "load and quota of the checkpoints' storage"),
    )
    if kind is Kind.CHECKPOINT_SLOW:
        return (*saving, ("training", f"raise the limit above the longest save: {limit}"))
    if kind is not Kind.RANK_STALLED:
        return ()
    if where.site == "checkpoint":
        return (*saving, ("training", f"raise the limit above the longest save: {limit}"))
    found = advice.SITES.get(where.site or "", ())
    if where.site == "evaluation":
        return (*found, ("training", f"raise the limit above the longest evaluation: {limit}"))
    return found


def _commands(kind: Kind, where: Where) -> tuple[str, ...]:
    if kind is Kind.HOST_OOM and where.how == "shared_memory":
        return ("df -h /dev/shm", "ls -lhS /dev/shm | head")
    if kind is Kind.HOST_OOM:
        return (_KERNEL, "cat /sys/fs/cgroup/memory.events   # in the container, cgroup v2: oom_kill")
    return _ON_HOSTS.get(kind, ())


def _next_start(kind: Kind, where: Where, framework: str | None) -> tuple[str, ...]:
    """Settings that make the next failure speak."""
    if kind is Kind.DEVICE_ASSERT:
        return (
            "export CUDA_LAUNCH_BLOCKING=1   # next start: the traceback then names the kernel's own call",
            "compute-sanitizer --tool memcheck python TRAINING_SCRIPT   # one rank, smallest case: very slow",
        )
    if kind is Kind.DEVICE_OOM:
        return (
            "# next start: torch.cuda.memory._record_memory_history(); on the error _dump_snapshot(FILE)",
        )
    if kind is Kind.RANK_EXITED:
        return ("export PYTHONFAULTHANDLER=1   # next start", "ulimit -c unlimited   # next start")
    if kind is Kind.INIT_STUCK:
        return (
            _NCCL,
            "export TORCH_CPP_LOG_LEVEL=INFO TORCH_DISTRIBUTED_DEBUG=INFO   # next start: who arrives",
        )
    steps: list[str] = []
    if kind in DIVERGED:
        steps.append(_DETAIL)
    if kind is Kind.FABRIC_STALLED:
        steps.append(_NCCL)
    if kind is Kind.GPU_STALLED:
        steps.append(
            "export TORCH_NCCL_ENABLE_TIMING=1   # next start: the recorder then knows which kernels began"
        )
    if framework in ("Ray", "verl") and kind in (*_HANGS, Kind.INCONCLUSIVE, Kind.SOFTWARE_ERROR):
        steps.append("export RAY_DEDUP_LOGS=0   # next start: Ray drops lines that ranks have in common")
    if kind in _HANGS or kind is Kind.INCONCLUSIVE:
        steps += [_TITAN_RECORDER] if framework == "torchtitan" else _RECORDER
    if kind is Kind.RANK_STALLED and where.site == "stopped":
        steps = ["kill -CONT PID", *steps]
    return tuple(steps)


def _fetch(missing: Sequence[int], homes: Mapping[int, str]) -> list[str]:
    """Where the logs of ranks are that left none here."""
    if not missing:
        return []
    hosts = sorted({host for rank in missing if (host := _safe(homes.get(rank)))})[:MAX_HOSTS]
    ranks = format_ranks(missing)
    return [
        f"scp '{host}:/path/to/logs/*' logs/   # nothing of rank {ranks} is here"
        for host in hosts or ["HOST"]
    ]


def _hosts(ranks: Sequence[int], where: Where, homes: Mapping[int, str]) -> list[str]:
    named = [*(homes.get(rank) for rank in ranks), *where.hosts]
    return list(dict.fromkeys(host for name in named if (host := _safe(name))))[:MAX_HOSTS]


def _safe(host: str | None) -> str | None:
    return host if host is not None and _HOST.fullmatch(host) else None


def _on(host: str | None, command: str) -> str:
    if host is None:
        return command
    run, _, remark = command.partition("   # ")
    quoted = run.replace("'", "'\\''")
    return f"ssh {host} '{quoted}'" + (f"   # {remark}" if remark else "")
