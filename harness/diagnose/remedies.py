"""What to change, and where to look next, for a job that runs on and is slow or wrong."""

from harness.model.diagnosis import Citation, Recommendation, Where
from harness.model.kinds import Kind

_TRAINING = {
    Kind.MEMORY_FRAGMENTATION: (
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True at the next start",
        "keep shapes fixed: no large temporary tensors whose size changes from step to step",
    ),
    Kind.HOST_MEMORY_LEAK: ("look for what grows by the step: losses kept as tensors, metrics, caches",),
    Kind.LOG_FLOOD: ("say a warning once, and on rank 0 only; write logs from a thread of their own",),
    Kind.DATA_STARVED: ("more loader workers and a deeper prefetch; tokenize before training",),
    Kind.LOSS_NOT_FINITE: (
        "go back to a checkpoint at least 100 steps before, and skip that stretch of the data",
        "check features and labels for finite values where batches are made",
    ),
    Kind.SILENT_CORRUPTION: ("go back to the last checkpoint before that step: later ones hold the damage",),
    Kind.DATA_CORRUPT: ("save and load the place in the data of every rank with the checkpoint",),
    Kind.CHECKPOINT_SLOW: ("save asynchronously, or to local disks first",),
    Kind.CHECKPOINT_FAILED: ("no step since then is safe: mend the storage, then save by hand",),
}
_STORAGE = {
    Kind.DATA_STARVED: "look for throttling and slow shards at the data's source",
    Kind.CHECKPOINT_SLOW: "look at the load and the quota of the checkpoints' storage",
    Kind.CHECKPOINT_FAILED: "df -h and df -i of the checkpoints' storage; is it mounted and writable there?",
}
_HARDWARE = {
    Kind.STRAGGLER: "clock, temperature, throttle reasons and link errors of that rank's card",
    Kind.SILENT_CORRUPTION: "take that card out of the job and test its memory",
    Kind.HARDWARE_FAULT: "take its node out of the job and reset the card; if it comes back, replace it",
}
_HOST_HARDWARE = {Kind.SILENT_CORRUPTION: "take that host out of the job and test its memory"}


def recommendations(kind: Kind, where: Where, on_cpus: bool = False) -> tuple[Recommendation, ...]:
    """What to change; no cards where it runs `on_cpus`. Source: suspects and runbook of the first seed."""
    found = [Recommendation("training", do) for do in _TRAINING.get(kind, ())]
    if kind in _STORAGE:
        found.append(Recommendation("storage", _STORAGE[kind]))
    if kind is Kind.STRAGGLER and (on_cpus or where.site == "host"):
        found.append(
            Recommendation("scheduler", "bind ranks to cores of their own, and look who else runs there")
        )
    elif kind in _HARDWARE and on_cpus:
        found.append(Recommendation("hardware", _HOST_HARDWARE[kind]))
    elif kind in _HARDWARE:
        found.append(Recommendation("hardware", _HARDWARE[kind]))
    return tuple(found)


def next_steps(kind: Kind, ranks: tuple[int, ...], where: Where, on_cpus: bool) -> tuple[str, ...]:
    """Commands that can be pasted, for kinds under which a job runs on; `ranks` are accused or suspected."""
    rank = ranks[0] if ranks else None
    of = f"   # rank {rank}" if rank is not None else "   # a few ranks"
    if kind is Kind.STRAGGLER and (on_cpus or where.site == "host"):
        return (f"top -H -p PID{of}", f"py-spy dump --nonblocking --pid PID{of}")
    if kind is Kind.STRAGGLER:
        return (
            f"nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE{of}",
            f"drill collect --match TRAINING_SCRIPT{of}: what it does while others wait",
        )
    if kind in (Kind.LOG_FLOOD, Kind.DATA_STARVED, Kind.HOST_MEMORY_LEAK):
        return (f"py-spy dump --nonblocking --pid PID{of}",)
    return ()


def hardware_steps(kind: Kind, evidence: tuple[Citation, ...]) -> tuple[str, ...]:
    """Commands that can be pasted, where cards or ports themselves speak."""
    ports = any(" port " in c.says for c in evidence)
    if ports:
        return (
            "ibdiagnet   # or: mlxlink -d DEVICE",
            "perfquery -x   # again in a minute: which counters grow?",
        )
    if kind is Kind.HARDWARE_FAULT:
        return (
            "dmesg -T | grep -i xid   # on that node: the first one is the cause",
            "dcgmi diag -r 2   # on that node, once it is drained",
        )
    return ("nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE   # on that node, under load",)
