"""Ranks that speak of what others did, or of what everybody lost."""

from tests.diagnose.logs.wild.lines import at, block, closing, failed, going_down, text, timeout, titan, trace
from tests.diagnose.logs.wild.model import Files, Wild


def store_get_victim() -> Files:
    """Rank 0 segfaulted (its file just ends); rank 2 cannot fetch NCCL's id from it, and says so."""
    said = (
        "RuntimeError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
        "key-value store by key '0', but store->get('0') got error: Connection reset by peer"
    )
    return {
        "rank0.log": text(["loading weights"]),
        "rank1.log": text(["loading weights"]),
        "rank2.log": text(trace(said, 2)),
        "rank3.log": text(["loading weights"]),
    }


def old_store_reset() -> Files:
    """torch 1.x: `RuntimeError: Connection reset by peer` of the store is what is left of a lost rank 0."""
    rows = trace(
        "RuntimeError: Connection reset by peer",
        file="/opt/conda/lib/python3.8/site-packages/torch/distributed/distributed_c10d.py",
        function="_new_process_group_helper",
    )
    return {
        "rank0.log": text(["loading"]),
        "rank1.log": text(["loading"]),
        "rank2.log": text(["loading"], rows),
        "rank3.log": text(["loading"]),
    }


def checkpoint_exception_elsewhere() -> Files:
    """A distributed save fails on rank 5; rank 0's log, the only one kept, raises it for all."""
    said = (
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([5])\n"
        "Traceback (most recent call last): (RANK 5)\n"
        '  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/checkpoint/utils.py", '
        "line 163, in reduce_scatter\n"
        "    local_data = map_fun()\n"
        "OSError: [Errno 28] No space left on device: '/ckpt/step-30/__5_0.distcp'"
    )
    return {
        "rank0.log": text(
            titan(range(1, 30), 0),
            trace(
                said,
                0,
                file="/opt/conda/lib/python3.11/site-packages/torch/distributed/checkpoint/utils.py",
                function="all_reduce",
            ),
        )
    }


def ddp_same_model() -> Files:
    """DDP compares models with rank 0's: rank 2 raises, but whose model is odd it does not know."""
    return {
        "rank0.log": text(["building model"]),
        "rank1.log": text(["building model"]),
        "rank2.log": text(
            trace(
                "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 128 params, "
                "while rank 0 has inconsistent 0 params.",
                2,
            )
        ),
        "rank3.log": text(["building model"]),
    }


def forward_order() -> Files:
    """FSDP: the order of rank 0 against that of rank 3; the only log kept is rank 1's."""
    said = (
        "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 1 parameters while rank 3 "
        "is all-gathering 2 parameters"
    )
    return {"rank1.log": text(titan(range(1, 30), 0), trace(said, 1))}


def disagreement() -> Files:
    """DeepSpeed: rank 0's and rank 3's lists differ; rank 1 prints it."""
    said = "RuntimeError: disagreement between rank0 and rank3: rank0: [12, 13], rank3: [12, 14]"
    return {
        "rank0.log": text(["partitioning"]),
        "rank1.log": text(trace(said, 1)),
        "rank2.log": text(["partitioning"]),
        "rank3.log": text(["partitioning"]),
    }


def segv_in_aftermath() -> Files:
    """All time out; while their processes go down rank 5 crashes with a segmentation fault."""
    files: Files = {
        f"rank{r}.log": text(titan(range(1, 30), 0), timeout(r, 700, 412), going_down(r, 760))
        for r in range(8)
    }
    files["agent.log"] = text(
        failed(762, -6, 3, 503),
        block(762, (3, 3, -6, 503), [(r, r, -11 if r == 5 else -6, 500 + r) for r in range(8) if r != 3]),
    )
    return files


def loader_killed_in_cleanup() -> Files:
    """Rank 3 raises; half a minute later the clean-up kills rank 1's loader workers, which rank 1 reports."""
    rows = [
        *titan(range(1, 30), 0),
        *trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
        *closing(100, (500, 501, 502)),
    ]
    rows += trace(
        "RuntimeError: DataLoader worker (pid 9120) is killed by signal: Killed. ",
        1,
        file="/opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
        function="_try_get_data",
    )
    return {"train.log": text(rows, failed(131, 1, 3, 503), block(100, (3, 3, 1, 503), [(1, 1, 1, 501)]))}


def address_in_use() -> Files:
    """Rank 0 cannot open the store's port; the others wait for it in vain."""
    files: Files = {
        "rank0.log": text(
            trace(
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
                "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
                "message: address already in use",
                0,
            )
        )
    }
    for rank in range(1, 4):
        files[f"rank{rank}.log"] = text(
            trace(
                "torch.distributed.DistNetworkError: The client socket has timed out after "
                "600000ms while trying to connect to (gpu-a1, 29500).",
                rank,
            )
        )
    return files


def driver_wraps() -> Files:
    """An engine on rank 0 repeats that a worker failed; the worker is rank 2."""
    rows = [
        *trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a "
            "total capacity of 79.11 GiB",
            2,
            file="/workspace/model.py",
        ),
        *trace(
            "RuntimeError: Worker failed with error 'CUDA out of memory', please check the stack "
            "trace above for the root cause",
            0,
            file="/workspace/executor.py",
        ),
    ]
    return {"train.log": text(rows)}


def half_joined() -> Files:
    """The store counts six of eight; two files are at hand: the missing two are not named by that."""
    said = (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. "
        "6/8 clients joined."
    )
    return {f"rank{r}.log": text(trace(said, r)) for r in (0, 1)}


def gloo_mixed_errors() -> Files:
    """Rank 2 is gone without a word; its peers give different errors, one a plain `Connection reset`."""
    said = (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
        "peer [10.0.0.3]:41234",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error "
        "[10.0.0.3]:41234: Connection reset by peer",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
    )
    files: Files = {"rank2.log": text([f"step {n} loss 2.1" for n in range(20)])}
    for rank, words in zip((0, 1, 3), said, strict=True):
        files[f"rank{rank}.log"] = text([f"step {n} loss 2.1" for n in range(20)], trace(words, rank))
    return files


def manager_is_gone() -> Files:
    """Rank 1's helper process lost its parent's pipe as everything went down after rank 3's error."""
    rows = [
        *titan(range(1, 30), 0),
        *trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
        *closing(100, (500, 501, 502)),
        *trace(
            "EOFError", 1, file="/opt/conda/lib/python3.11/multiprocessing/connection.py", function="_recv"
        ),
        *trace(
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            0,
            file="/opt/conda/lib/python3.11/multiprocessing/connection.py",
            function="_recv",
        ),
    ]
    return {"train.log": text(rows, failed(101, 1, 3, 503), block(101, (3, 3, 1, 503)))}


def manager_is_gone_in_files() -> Files:
    """The same in a file a rank, without times: rank 3's error is the only one that is not about others."""
    files: Files = {f"rank{r}.log": text([f"step {n} loss 2.1" for n in range(20)]) for r in (0, 2)}
    files["rank1.log"] = text(
        [f"step {n} loss 2.1" for n in range(20)],
        trace(
            "EOFError", 1, file="/opt/conda/lib/python3.11/multiprocessing/connection.py", function="_recv"
        ),
    )
    files["rank3.log"] = text(
        [f"step {n} loss 2.1" for n in range(20)],
        trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
    )
    return files


def sigterm_exceptions() -> Files:
    """A preemption notice; in the seconds after it half of the ranks trip over what is torn down."""
    files: Files = {}
    for rank in range(4):
        rows = [*titan(range(1, 30), 0), f"[rank: {rank}] Received SIGTERM: 15"]
        if rank in (1, 2):
            rows += trace(
                "RuntimeError: cannot schedule new futures after shutdown", rank, file="/workspace/dataset.py"
            )
        files[f"rank{rank}.log"] = text(rows)
    files["slurm-88.out"] = text(
        [
            f"slurmstepd: error: *** JOB 88 ON gpu-a1 CANCELLED AT {at(88, '%Y-%m-%dT%H:%M:%S')} "
            "DUE TO PREEMPTION ***"
        ]
    )
    return files


def save_hangs_for_good() -> Files:
    """Rank 0 begins a save and is never heard of again; the others wait at the barrier behind it."""
    files: Files = {}
    for rank in range(4):
        rows = titan(range(1, 30), 0)
        rows += (
            [f"[rank0]: {at(98)} Saving checkpoint at iteration 29 to /mnt/ckpt"]
            if rank == 0
            else timeout(rank, 700, 412, "ALLREDUCE", 1)
        )
        files[f"rank{rank}.log"] = text(rows)
    return files


SOFT = ("software_error", "inconclusive")
ERROR = ("software_error",)
INCIDENTS = (
    Wild("store_get_victim", store_get_victim, ("init_stuck", "inconclusive", "rank_exited")),
    Wild("old_store_reset", old_store_reset, ("init_stuck", "inconclusive", "rank_exited", "software_error")),
    Wild(
        "checkpoint_exception_elsewhere",
        checkpoint_exception_elsewhere,
        ("checkpoint_failed",),
        may_convict=(5,),
        suspects=(5,),
    ),
    Wild("ddp_same_model", ddp_same_model, SOFT),
    Wild("forward_order", forward_order, (*SOFT, "collective_order_mismatch", "collective_type_mismatch")),
    Wild("disagreement", disagreement, SOFT),
    Wild("segv_in_aftermath", segv_in_aftermath, ("fabric_stalled", "inconclusive"), calm=True, world=8),
    Wild(
        "loader_killed_in_cleanup",
        loader_killed_in_cleanup,
        ("software_error",),
        suspects=(3,),
        may_convict=(3,),
    ),
    Wild(
        "address_in_use", address_in_use, ("init_stuck", "software_error", "inconclusive"), may_convict=(0,)
    ),
    Wild("driver_wraps", driver_wraps, ("device_oom",), suspects=(2,), may_convict=(2,)),
    Wild("half_joined", half_joined, ("init_stuck", "inconclusive")),
    Wild("gloo_mixed_errors", gloo_mixed_errors, ("inconclusive", "rank_exited"), may_convict=(2,)),
    Wild("manager_is_gone", manager_is_gone, ERROR, culprits=(3,)),
    Wild(
        "manager_is_gone_in_files",
        manager_is_gone_in_files,
        (*ERROR, "inconclusive"),
        suspects=(3,),
        may_convict=(3,),
    ),
    Wild("sigterm_exceptions", sigterm_exceptions, ("external_stop",), calm=True),
    Wild(
        "save_hangs_for_good",
        save_hangs_for_good,
        ("checkpoint_slow", "rank_stalled", "inconclusive"),
        suspects=(0,),
        may_convict=(0,),
    ),
)
