"""The words of a diagnosis: kinds, categories, confidence. They are stable; scripts match on them."""

from enum import Enum


class Kind(str, Enum):
    """What happened. A diagnosis has exactly one."""

    COLLECTIVE_SIZE_MISMATCH = "collective_size_mismatch"
    COLLECTIVE_DTYPE_MISMATCH = "collective_dtype_mismatch"
    COLLECTIVE_TYPE_MISMATCH = "collective_type_mismatch"
    COLLECTIVE_SKIPPED = "collective_skipped"
    COLLECTIVE_EXTRA = "collective_extra"
    MICROBATCH_MISMATCH = "microbatch_mismatch"
    COLLECTIVE_ORDER_MISMATCH = "collective_order_mismatch"
    P2P_MISMATCH = "p2p_mismatch"
    RANK_STALLED = "rank_stalled"
    RANK_EXITED = "rank_exited"
    INIT_STUCK = "init_stuck"
    TEARDOWN_HANG = "teardown_hang"
    FABRIC_STALLED = "fabric_stalled"
    GPU_STALLED = "gpu_stalled"
    HARDWARE_FAULT = "hardware_fault"
    DEVICE_ASSERT = "device_assert"
    NODE_LOST = "node_lost"
    DEVICE_OOM = "device_oom"
    HOST_OOM = "host_oom"
    STRAGGLER = "straggler"
    DATA_STARVED = "data_starved"
    MEMORY_FRAGMENTATION = "memory_fragmentation"
    LOG_FLOOD = "log_flood"
    CHECKPOINT_SLOW = "checkpoint_slow"
    CHECKPOINT_FAILED = "checkpoint_failed"
    HOST_MEMORY_LEAK = "host_memory_leak"
    COMM_SLOW = "comm_slow"
    LOSS_NOT_FINITE = "loss_not_finite"
    SILENT_CORRUPTION = "silent_corruption"
    DATA_CORRUPT = "data_corrupt"
    RESTART_LOOP = "restart_loop"
    STORAGE_FAILURE = "storage_failure"
    EXTERNAL_STOP = "external_stop"
    SOFTWARE_ERROR = "software_error"
    HEALTHY = "healthy"
    INCONCLUSIVE = "inconclusive"


class Category(str, Enum):
    """Whose desk a diagnosis lands on."""

    STORAGE_IO = "storage_io"
    NETWORK = "network"
    GPU = "gpu"
    DATA = "data"
    SOFTWARE = "software"
    INFRASTRUCTURE = "infrastructure"
    DATA_LOADING_STALL = "data_loading_stall"
    NONE = "none"


class Confidence(str, Enum):
    """How much agreeing evidence stands behind a conclusion."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


_CATEGORIES = {
    Kind.INIT_STUCK: Category.NETWORK,
    Kind.FABRIC_STALLED: Category.NETWORK,
    Kind.COMM_SLOW: Category.NETWORK,
    Kind.GPU_STALLED: Category.GPU,
    Kind.HARDWARE_FAULT: Category.GPU,
    Kind.DEVICE_ASSERT: Category.GPU,
    Kind.DEVICE_OOM: Category.GPU,
    Kind.MEMORY_FRAGMENTATION: Category.GPU,
    Kind.SILENT_CORRUPTION: Category.GPU,
    Kind.NODE_LOST: Category.INFRASTRUCTURE,
    Kind.EXTERNAL_STOP: Category.INFRASTRUCTURE,
    Kind.DATA_STARVED: Category.DATA,
    Kind.DATA_CORRUPT: Category.DATA,
    Kind.CHECKPOINT_SLOW: Category.STORAGE_IO,
    Kind.CHECKPOINT_FAILED: Category.STORAGE_IO,
    Kind.STORAGE_FAILURE: Category.STORAGE_IO,
    Kind.HEALTHY: Category.NONE,
    Kind.INCONCLUSIVE: Category.NONE,
}


DIVERGED = frozenset(
    (
        Kind.COLLECTIVE_SIZE_MISMATCH,
        Kind.COLLECTIVE_DTYPE_MISMATCH,
        Kind.COLLECTIVE_TYPE_MISMATCH,
        Kind.COLLECTIVE_SKIPPED,
        Kind.COLLECTIVE_EXTRA,
        Kind.MICROBATCH_MISMATCH,
        Kind.COLLECTIVE_ORDER_MISMATCH,
        Kind.P2P_MISMATCH,
    )
)
"""Kinds under which ranks issue unlike calls."""


GOES_ON = frozenset(
    (
        Kind.STRAGGLER,
        Kind.DATA_STARVED,
        Kind.MEMORY_FRAGMENTATION,
        Kind.LOG_FLOOD,
        Kind.CHECKPOINT_SLOW,
        Kind.CHECKPOINT_FAILED,
        Kind.HOST_MEMORY_LEAK,
        Kind.COMM_SLOW,
        Kind.LOSS_NOT_FINITE,
        Kind.SILENT_CORRUPTION,
        Kind.DATA_CORRUPT,
    )
)
"""Kinds under which a job runs on: nothing stalls or exits that a clock could notice."""


_STRAGGLERS = {"throttle": Category.GPU, "link": Category.NETWORK}


def category_of(kind: Kind, site: str | None = None) -> Category:
    """The category of a kind where no further cause is known; `site` is ``where.site``."""
    if kind is Kind.RANK_STALLED and site == "dataloader":
        return Category.DATA_LOADING_STALL
    if kind is Kind.STRAGGLER and site in _STRAGGLERS:
        return _STRAGGLERS[site]
    return _CATEGORIES.get(kind, Category.SOFTWARE)
