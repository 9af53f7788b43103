"""What to change, kind by kind and site by site: sentences that `causes` chooses from."""

from collections.abc import Mapping

from harness.model.kinds import Kind

Advice = tuple[tuple[str, str], ...]
"""Pairs of a side and what to do there."""

LIMITS = {
    "torchtitan": "--comm.train_timeout_seconds",
    "Megatron": "--distributed-timeout-minutes",
    "NeMo": "the strategy's timeout=timedelta(...)",
    "Lightning": "DDPStrategy(timeout=timedelta(...))",
    "DeepSpeed": "deepspeed.init_distributed(timeout=timedelta(...))",
}
LIMIT = "init_process_group(timeout=timedelta(...))"
ASYNC_SAVES = {
    "torchtitan": "--checkpoint.async_mode async",
    "Megatron": "--async-save with the torch_dist format",
}
ASYNC_SAVE = "torch.distributed.checkpoint.async_save"

EVEN_INPUT = "give every rank equally many batches: drop_last=True, an even sampler, or torch's Join"
ONE_DECISION = "decide on one rank and broadcast the decision; no collective under a rank-dependent condition"
NO_TIMEOUT = "a read without a time limit stalls every rank"

RECOMMENDED: Mapping[Kind, Advice] = {
    Kind.DEVICE_OOM: (
        (
            "training",
            "smaller micro-batch or sequence, or recompute activations: of the rank that ran out",
        ),
        (
            "training",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if much is reserved but unallocated",
        ),
        ("scheduler", "see that no other process holds memory on that device"),
    ),
    Kind.HARDWARE_FAULT: (
        ("scheduler", "drain the node before the next start, so that the job does not return to it"),
    ),
    Kind.NODE_LOST: (
        ("scheduler", "drain the node until its reboot or loss of network is explained; start without it"),
        ("training", "torchrun --max-restarts and a spare node let the job go on from its last checkpoint"),
    ),
    Kind.STORAGE_FAILURE: (
        (
            "storage",
            "load, full disks and restarts of the storage at that time; errors by server, not in total",
        ),
        ("client", "more retries with growing pauses; then fail the read, not the whole loader"),
    ),
    Kind.DATA_CORRUPT: (
        ("storage", "compare size and checksum of the file that is named with its source"),
        (
            "training",
            "skip and count bad samples on all ranks alike, or every rank's number of batches differs",
        ),
    ),
    Kind.SOFTWARE_ERROR: (
        ("training", "mend the exception's cause; other ranks' errors after it are its effects"),
    ),
    Kind.FABRIC_STALLED: (
        (
            "hardware",
            "link state and error counters of every node in the group: NVLink, InfiniBand or Ethernet",
        ),
        ("hardware", "nccl-tests all_reduce_perf on the same nodes, halved until it passes"),
    ),
    Kind.GPU_STALLED: (
        ("hardware", "take that rank's device out of the job and test it: dcgmi diag -r 3"),
        (
            "training",
            "if another device stalls at the same call it is the kernel: CUDA_LAUNCH_BLOCKING=1 finds it",
        ),
    ),
    Kind.INIT_STUCK: (
        (
            "scheduler",
            "start the ranks that never arrived, or see why they could not; one job id a rendezvous",
        ),
        (
            "training",
            "MASTER_ADDR and MASTER_PORT reachable from all hosts; NCCL_SOCKET_IFNAME names their network",
        ),
    ),
    Kind.TEARDOWN_HANG: (
        (
            "training",
            "a barrier, then destroy_process_group() on every rank, then the rest; the results are whole",
        ),
    ),
    Kind.RESTART_LOOP: (
        (
            "scheduler",
            "stop restarting until the repeated cause is mended: --max-restarts 0 leaves the first failure",
        ),
        ("training", "resume from the checkpoint before the last, if every attempt ends at the same step"),
    ),
    Kind.COLLECTIVE_SIZE_MISMATCH: (
        (
            "training",
            "gather the sizes first, or pad: all_reduce and all_gather_into_tensor need equal sizes",
        ),
    ),
    Kind.COLLECTIVE_DTYPE_MISMATCH: (
        ("training", "cast before the call: autocast and buffers may differ by rank"),
    ),
    Kind.COLLECTIVE_TYPE_MISMATCH: (("training", ONE_DECISION),),
    Kind.COLLECTIVE_SKIPPED: (("training", ONE_DECISION),),
    Kind.COLLECTIVE_EXTRA: (("training", ONE_DECISION),),
    Kind.MICROBATCH_MISMATCH: (("training", EVEN_INPUT),),
    Kind.COLLECTIVE_ORDER_MISMATCH: (
        (
            "training",
            "issue collectives of different groups in one order on all ranks, also from hooks and threads",
        ),
    ),
    Kind.P2P_MISMATCH: (
        ("training", "each send needs its receive with equal size and order: batch_isend_irecv pairs them"),
    ),
    Kind.CHECKPOINT_FAILED: (
        (
            "storage",
            "space, inodes and quota of the checkpoints' storage; is it writable from every writer?",
        ),
        ("training", "check the newest checkpoint before resuming: a save that broke off leaves part of one"),
    ),
}

SITES: Mapping[str, Advice] = {
    "dataloader": (
        ("training", f"DataLoader(timeout=...) below the collective's limit: {NO_TIMEOUT}"),
        ("client", f"connect and read timeouts on the client: {NO_TIMEOUT}"),
        (
            "storage",
            "latency of the shards that this rank reads: shards are disjoint, so one may be slow alone",
        ),
    ),
    "evaluation": (
        (
            "training",
            "evaluate on all ranks, or let the others wait in monitored_barrier(timeout=...) on gloo",
        ),
    ),
    "gil": (
        (
            "training",
            "native code that keeps the GIL while it waits: release it, or move it to a process of its own",
        ),
    ),
    "logging": (
        ("training", "log from a queue and a thread of its own; a full pipe or slow disk blocks the caller"),
    ),
    "item_sync": (
        ("training", "item(), tolist() and cpu() wait for the device: keep them off single ranks"),
    ),
    "lock": (("training", "no collective and no wait for another process while a lock is held"),),
    "io": (("storage", "what that rank read or wrote: mount, server, quota"),),
    "stopped": (("scheduler", "who sent SIGSTOP: a debugger, a job suspension; kill -CONT lets it go on"),),
    "cuda_api": (("hardware", "driver and device of that rank: a CUDA call that does not return"),),
}

XID_RESET = "reset the GPU, or reboot the node; test it before it returns"
XIDS: tuple[tuple[frozenset[int], str], ...] = (
    (frozenset((48, 95)), f"uncorrectable memory error: {XID_RESET}; RMA if it comes again"),
    (frozenset((63,)), "rows will be remapped at the next reset: reset the GPU; no RMA yet"),
    (frozenset((64,)), "row remapping failed: reset the GPU; RMA if remapping fails again"),
    (frozenset((94,)), "contained memory error: restart the job, reset the GPU when it is idle"),
    (
        frozenset((79,)),
        "fell off the bus: power-cycle the node, reseat card and risers; RMA if it comes again",
    ),
    (frozenset((74,)), "NVLink error: link state on both ends, fabric manager; RMA if it comes again"),
    (frozenset((61, 62, 109, 119, 120)), f"device firmware or driver stopped answering: {XID_RESET}"),
)
"""Source: NVIDIA's XID catalogue, recommended actions."""
XID_OTHER = f"{XID_RESET}; RMA if dcgmi diag -r 3 fails"
