"""Which section of the runbook is about which kind."""

from collections.abc import Mapping

from harness.model.kinds import Kind

RUNBOOK = "docs/runbook.md"

_SLOW = (
    *(Kind.STRAGGLER, Kind.DATA_STARVED, Kind.MEMORY_FRAGMENTATION, Kind.LOG_FLOOD),
    *(Kind.HOST_MEMORY_LEAK, Kind.COMM_SLOW),
)
_SECTIONS: Mapping[str, tuple[Kind, ...]] = {
    "mfu-degraded": _SLOW,
    "loss-not-finite": (Kind.LOSS_NOT_FINITE, Kind.SILENT_CORRUPTION, Kind.DATA_CORRUPT),
    "checkpoint-failed": (Kind.CHECKPOINT_SLOW, Kind.CHECKPOINT_FAILED, Kind.STORAGE_FAILURE),
    "gpu-xid": (Kind.HARDWARE_FAULT, Kind.GPU_STALLED),
}
_BY_KIND = {kind: section for section, kinds in _SECTIONS.items() for kind in kinds}


def section_of(kind: Kind) -> str | None:
    """File and anchor; None where there is nothing to do. What stops a job is a stall to whoever is woken."""
    if kind is Kind.HEALTHY:
        return None
    return f"{RUNBOOK}#{_BY_KIND.get(kind, 'step-stalled')}"
