"""Processes that end: who broke first, who only followed, and ends that name nobody."""

from tests.diagnose.logs.wild.lines import (
    at,
    block,
    closing,
    failed,
    glog,
    megatron,
    text,
    timeout,
    titan,
    trace,
)
from tests.diagnose.logs.wild.model import Files, Wild


def glued_bar() -> Files:
    """A progress bar without a line end in front of one rank's exception."""
    rows = [f"  1%|          | {n}/1752 [00:{n:02}<1:22:01,  2.83s/it]" for n in range(10, 24)]
    first, *rest = trace(
        "ValueError: too many values to unpack (expected 2)",
        5,
        file="/workspace/model.py",
        function="forward",
    )
    rows += [f"  1%|▏         | 24/1752 [01:08<1:22:56,  2.88s/it]{first}", *rest]
    rows += closing(80, range(4200, 4205)) + failed(80, 1, 5, 4205)
    rows += block(79, (5, 5, 1, 4205))
    return {"log.txt": text(rows)}


def late_step_line() -> Files:
    """Rank 3 raises; rank 0 still prints the step that it was at, without a prefix, one line below."""
    rows = [*titan(range(1, 30), 0), *trace("KeyError: 'labels'", 3, file="/workspace/collate.py")]
    rows += [*titan([30], 87), *closing(100, (500, 501, 502)), *failed(101, 1, 3, 503)]
    return {"train.log": text(rows, block(101, (3, 3, 1, 503)))}


def final_save_fails() -> Files:
    """The training is complete, and then the final checkpoint is not written: not a mere shutdown."""
    said = "OSError: [Errno 28] No space left on device: '/ckpt/final/__0_0.distcp'"
    return {
        "train.log": text(
            titan(range(1, 30), 0),
            f"[titan] {at(100)} - root - INFO - Training completed",
            f"[rank0]: {at(101)} Saving the final checkpoint",
            trace(
                said,
                0,
                file="/opt/conda/lib/python3.11/site-packages/torch/distributed/checkpoint/filesystem.py",
                function="_write_item",
            ),
        )
    }


def accelerate_oom() -> Files:
    """One rank runs out of device memory and prints it; the launcher names it; others get SIGTERM."""
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 1 has a total "
        "capacity of 79.25 GiB of which "
        "912.00 MiB is free. Process 77 has 78.34 GiB memory in use."
    )
    return {
        "log": text(
            titan(range(1, 9), 0),
            trace(oom, 1, file="/workspace/model.py", function="forward"),
            closing(40, (500, 502, 503)),
            failed(41, 1, 1, 501),
            block(40, (1, 1, 1, 501)),
        )
    }


def segv_named() -> Files:
    """A segmentation fault that only the agent reports; the others are closed by it."""
    return {
        "log": text(
            titan(range(1, 9), 0),
            closing(40, (500, 501, 503)),
            failed(41, -11, 2, 502),
            block(40, (2, 2, -11, 502)),
        )
    }


def all_died_alike() -> Files:
    """Every rank raises the same error from the same line within a second: a bug of all, no rank to blame."""
    files: Files = {}
    for rank in range(8):
        files[f"logs/rank{rank}.err"] = text(
            titan(range(1, 9), 0),
            trace(
                "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x1024 and 2048x4096)",
                rank,
                file="/workspace/model.py",
                function="forward",
            ),
        )
    return files


def kill_after_others_failure() -> Files:
    """Rank 3's exception, and thirty seconds later a -9 on the ranks that would not end."""
    return {
        "log": text(
            titan(range(1, 9), 0),
            trace(
                "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-00017.idx'",
                3,
                file="/workspace/dataset.py",
                function="open",
            ),
            closing(40, (500, 501, 502)),
            [
                "W0314 02:01:10.000000 4100 torch/distributed/elastic/multiprocessing/api.py:919] "
                f"Unable to shutdown process {p} via 15, forcefully exiting via 9"
                for p in (500, 501, 502)
            ],
            failed(72, 1, 3, 503),
            block(40, (3, 3, 1, 503), [(0, 0, -9, 500), (1, 1, -9, 501), (2, 2, -9, 502)]),
        )
    }


def megatron_nan_rerun() -> Files:
    """Megatron's rerun machine finds a NaN on rank 3 and stops there."""
    rows = [
        *megatron(range(1, 4), 0),
        "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #4 "
        "invocation #2 (message='found NaN in local grad norm for bucket #0 in backward pass "
        "before data-parallel communication collective')",
        "ERROR:megatron.core.rerun_state_machine:Rank 3, node gpu-a1, device 3, iteration #4: "
        "First rerun: unexpected result is reproducible within the tolerance (nan = nan). Need to "
        "rerun on a different GPU to verify correctness",
        *trace(
            "AssertionError: found NaN in local grad norm for bucket #0 in backward pass before "
            "data-parallel communication collective",
            3,
            file="/workspace/megatron/core/distributed/param_and_grad_buffer.py",
            function="check_grads",
        ),
        *closing(40, (500, 501, 502)),
        *failed(41, 1, 3, 503),
        *block(40, (3, 3, 1, 503)),
    ]
    return {"node0.log": text(rows)}


def nan_only_printed() -> Files:
    """The loss turns NaN and stays NaN; nothing raises; the run is cut off."""
    rows = titan(range(1, 30), 0)
    rows += [
        f"[titan] {at(100 + 3 * n)} - root - INFO - step: {30 + n}  loss:      nan  grad_norm:     "
        "nan  memory: 61.38GiB(77.42%)  tps: 3,412  tflops: 413.90  mfu: 41.85%"
        for n in range(40)
    ]
    return {"train.log": text(rows)}


def k8s_oomkilled() -> Files:
    """Kubernetes says that a pod was OOMKilled; the master only lost a peer."""
    master = [
        *titan(range(1, 30), 0),
        *trace(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
            "by peer [10.0.0.3]:41234",
            0,
        ),
    ]
    worker = titan(range(1, 30), 0)
    events = [
        "LAST SEEN   TYPE      REASON      OBJECT                     MESSAGE",
        "2m          Warning   OOMKilling  node/k8s-n3                Memory cgroup out of memory: "
        "Killed process 30211 (python) total-vm:120034212kB, anon-rss:80123456kB",
        "2m          Normal    Killing     pod/train-worker-1         Container pytorch exited "
        "with code 137 (OOMKilled)",
    ]
    return {
        "train-master-0.log": text(master),
        "train-worker-1.log": text(worker),
        "events.txt": text(events),
    }


def exception_in_callback_all_victims() -> Files:
    """Rank 0 fails to write its checkpoint: disk full; the rest lose it at the barrier."""
    files: Files = {}
    for rank in range(4):
        rows = [*titan(range(1, 30), 0)]
        if rank == 0:
            rows += [
                f"[titan] {at(100)} - root - INFO - Saving the checkpoint.",
                *trace(
                    "OSError: [Errno 28] No space left on device: '/ckpt/step-30/__0_0.distcp'",
                    0,
                    file="/opt/conda/lib/python3.11/site-packages/torch/distributed/checkpoint/filesystem.py",
                    function="_write_item",
                ),
            ]
        else:
            rows += trace(
                "torch.distributed.DistBackendError: NCCL error in: "
                "../torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there "
                "was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly "
                "due to a network error or a remote process exiting prematurely.",
                rank,
            )
        files[f"rank{rank}.log"] = text(rows)
    return files


def early_exit_zero() -> Files:
    """Rank 5's loader had fewer batches: it says that it is done; the others wait till the timeout."""
    files: Files = {}
    for rank in range(8):
        rows = titan(range(1, 30), 0)
        rows += (
            [f"[rank5]: {at(100)} epoch 0 finished, 29 batches, training complete, exiting"]
            if rank == 5
            else timeout(rank, 700, 412)
        )
        files[f"rank{rank}.log"] = text(rows)
    return files


def sigterm_by_user() -> Files:
    """Ctrl-C on the launcher: every rank prints KeyboardInterrupt with a traceback of where it stood."""
    rows = [
        *titan(range(1, 30), 0),
        "^CW0314 02:02:00.000000 4100 torch/distributed/elastic/agent/server/api.py:719] Received "
        "Signals.SIGINT death signal, shutting down workers",
    ]
    for r in range(4):
        rows += trace("KeyboardInterrupt", r, file="/workspace/train.py")
    rows += [
        "W0314 02:02:00.100000 4100 torch/distributed/elastic/multiprocessing/api.py:900] Sending "
        f"process {500 + r} closing signal SIGINT"
        for r in range(4)
    ]
    rows += ["torch.distributed.elastic.multiprocessing.api.SignalException: Process 4100 got signal: 2"]
    return {"train.log": text(rows)}


def two_different_errors() -> Files:
    """Ranks 2 and 6 on two nodes fail with different errors, no times: nobody knows who was first."""
    files: Files = {}
    for rank in range(8):
        rows = [f"step {n} loss 2.1" for n in range(40)]
        if rank == 2:
            rows += trace(
                "IndexError: list index out of range", 2, file="/workspace/data.py", function="pack"
            )
        elif rank == 6:
            rows += trace(
                "AttributeError: 'NoneType' object has no attribute 'shape'",
                6,
                file="/workspace/loss.py",
                function="loss",
            )
        files[f"rank{rank}.log"] = text(rows)
    return files


def worker_traceback_in_main() -> Files:
    """A loader worker's exception re-raised in rank 1: the "Original Traceback" stands inside the other."""
    inner = [
        "Caught UnpicklingError in DataLoader worker process 3.",
        "Original Traceback (most recent call last):",
        '  File "/opt/conda/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line '
        "309, in _worker_loop",
        "    data = fetcher.fetch(index)",
        '  File "/workspace/dataset.py", line 41, in __getitem__',
        "    return pickle.loads(raw)",
        "_pickle.UnpicklingError: pickle data was truncated",
    ]
    rows = trace(
        "_pickle.UnpicklingError: " + "\n".join(inner),
        1,
        file="/opt/conda/lib/python3.11/site-packages/torch/_utils.py",
        function="reraise",
    )
    return {
        "log": text(
            titan(range(1, 30), 0),
            rows,
            closing(100, (500, 502, 503)),
            failed(101, 1, 1, 501),
            block(100, (1, 1, 1, 501)),
        )
    }


def cuda_error_everywhere() -> Files:
    """An illegal access on rank 4; the others' watchdogs see NCCL errors and repeat the word CUDA error."""
    files: Files = {}
    for rank in range(8):
        rows = titan(range(1, 30), 0)
        if rank == 4:
            rows += [
                f"[rank4]:{glog(100.0, file='ProcessGroupNCCL.cpp:1895')} [PG ID 0 PG GUID "
                "0(default_pg) Rank 4] Process group watchdog thread terminated with exception: "
                "CUDA error: an illegal memory access was encountered"
            ]
        else:
            rows += [
                f"[rank{rank}]:{glog(101.0, file='ProcessGroupNCCL.cpp:1895')} [PG ID 0 PG GUID "
                f"0(default_pg) Rank {rank}] Process group watchdog thread terminated with "
                "exception: NCCL error: remote process exited or there was a network error, NCCL "
                "version 2.21.5",
                "ncclRemoteError: A call failed possibly due to a network error or a remote "
                "process exiting prematurely.",
                "Last error:",
                f"socketProgress: Connection closed by remote peer gpu-a1<{40000 + rank}>",
            ]
        files[f"rank{rank}.log"] = text(rows)
    return files


INCIDENTS = (
    Wild("glued_bar", glued_bar, ("software_error",), culprits=(5,)),
    Wild("late_step_line", late_step_line, ("software_error",), culprits=(3,)),
    Wild("final_save_fails", final_save_fails, ("checkpoint_failed",), culprits=(0,), not_said=("usable",)),
    Wild("accelerate_oom", accelerate_oom, ("device_oom",), culprits=(1,)),
    Wild("segv_named", segv_named, ("rank_exited",), culprits=(2,)),
    Wild("all_died_alike", all_died_alike, ("software_error",), may_convict=tuple(range(8))),
    Wild(
        "kill_after_others_failure",
        kill_after_others_failure,
        ("software_error", "storage_failure", "data_corrupt"),
        culprits=(3,),
    ),
    Wild("megatron_nan_rerun", megatron_nan_rerun, ("loss_not_finite",), culprits=(3,)),
    Wild("nan_only_printed", nan_only_printed, ("loss_not_finite", "inconclusive"), may_convict=()),
    Wild("k8s_oomkilled", k8s_oomkilled, ("host_oom",), may_convict=()),
    Wild(
        "exception_in_callback_all_victims",
        exception_in_callback_all_victims,
        ("checkpoint_failed",),
        culprits=(0,),
    ),
    Wild(
        "early_exit_zero", early_exit_zero, ("rank_exited", "inconclusive"), suspects=(5,), may_convict=(5,)
    ),
    Wild("sigterm_by_user", sigterm_by_user, ("external_stop",), calm=True),
    Wild("two_different_errors", two_different_errors, ("software_error", "inconclusive"), suspects=(2, 6)),
    Wild("worker_traceback_in_main", worker_traceback_in_main, ("data_corrupt",), culprits=(1,)),
    Wild("cuda_error_everywhere", cuda_error_everywhere, ("device_assert",), culprits=(4,)),
)
