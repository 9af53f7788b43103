"""Jobs in which nothing is wrong, or nothing that a rank did: scary words, handled errors, long saves."""

from tests.diagnose.logs.wild.lines import at, glog, megatron, text, titan, trace
from tests.diagnose.logs.wild.model import Files, Wild

FINE = ("healthy", "inconclusive")
DONE = "Training completed"


def config_dump() -> Files:
    """A configuration full of scary keys, then a run that ends well."""
    config = """NCCL_ASYNC_ERROR_HANDLING=1
TORCH_NCCL_BLOCKING_WAIT=0
  timeout: 1800
  error_rate: 0.0
  on_exception: skip_batch
  max_retries: 5
  retry_on: [ConnectionError, TimeoutError, botocore.exceptions.ClientError]
  oom_safe: true
  handlers.exceptions.CudaOutOfMemoryError: empty_cache
  exit_on_nan: true   # raise if loss is NaN
  callbacks: [OOMObserver, NaNMonitor, OnExceptionCheckpoint, FaultTolerance]
  fault_tolerance: {calc_timeouts: true, rank_heartbeat_timeout: 1800, signal: SIGKILL}
checkpoint_errors_policy: builtins.RuntimeError
store_exceptions:
  torch.distributed.DistStoreError: retry 3/3
  TimeoutError
Setting TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800, watchdog timeout=600000 ms
MemoryError"""
    return {"train.log": text(config, titan(range(1, 60), 10), f"[titan] {at(200)} - root - INFO - {DONE}")}


def handled_tracebacks() -> Files:
    """A loader logs whole tracebacks of bad samples, skips them, and goes on to the end."""
    rows = titan(range(1, 30), 0)
    for n in (1, 2, 3):
        rows += [
            f"[titan] {at(90 + n)} - data - WARNING - sample {n} of shard 17 could not be read, skipping it"
        ]
        rows += trace(
            "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f10>",
            file="/workspace/data/dataset.py",
            function="__getitem__",
        )
        rows += titan(range(30 * n, 30 * n + 30), 100 * n)
    return {"train.log": text(rows, f"[titan] {at(500)} - root - INFO - {DONE}")}


def handled_then_running() -> Files:
    """The same, cut off while it trains: no end, but nothing broke either."""
    rows = titan(range(1, 30), 0)
    rows += trace(
        "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='tracker.example', port=443): Read timed "
        "out. (read timeout=20)",
        file="/workspace/callbacks/tracking.py",
        function="flush",
    )
    rows += [f"[titan] {at(95)} - tracking - WARNING - metrics not sent, will try again later"]
    return {"train.log": text(rows, titan(range(30, 90), 100))}


def rank_handled_oom() -> Files:
    """Rank 3 runs out of memory once, catches it, halves the batch, and all train on to the end."""
    files: Files = {}
    for rank in range(4):
        rows = titan(range(1, 40), 0, front=f"[rank{rank}]: ")
        if rank == 3:
            rows += [
                f"[rank3]: {at(125)} WARNING caught torch.OutOfMemoryError: CUDA out of memory. "
                "Tried to allocate "
                "2.00 GiB. GPU 3 has a total capacity of 79.11 GiB; halving the micro-batch and trying again"
            ]
        rows += titan(range(40, 90), 130, front=f"[rank{rank}]: ")
        rows += [f"[rank{rank}]: [titan] {at(300)} - root - INFO - {DONE}"]
        files[f"rank_{rank}.log"] = text(rows)
    return files


def wandb_noise() -> Files:
    """A tracker loses its network again and again; training does not care."""
    noise = [
        "wandb: Network error (ConnectionError), entering retry loop.",
        "wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [500]>)",
        "wandb: 429 encountered (Filestream rate limit exceeded), retrying in 2.3 seconds, retrying 5/5",
        "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='api.tracker.example', "
        "port=443): Max retries exceeded",
        "Exception in thread NetStatThr:",
        *trace(
            "BrokenPipeError: [Errno 32] Broken pipe",
            file="/opt/conda/lib/python3.11/site-packages/wandb/sdk/wandb_run.py",
            function="check_network_status",
        ),
        "wandb: WARNING The service process is busy; connection refused, retry attempt 3/3",
    ]
    rows = titan(range(1, 20), 0) + noise + titan(range(20, 60), 80) + noise
    return {
        "out.log": text(rows, titan(range(60, 70), 220), "Finished training", "wandb: Run summary:", noise[0])
    }


def long_save() -> Files:
    """A save of five minutes that ends, and steps after it."""
    rows = [
        *titan(range(1, 50), 0),
        f"[titan] {at(160)} - root - INFO - Saving the checkpoint (or staging if async is enabled).",
        f"[titan] {at(470)} - root - INFO - Finished saving the checkpoint (or staging if async is "
        "enabled) in 310.22 seconds.",
        *titan(range(50, 90), 473),
        f"[titan] {at(700)} - root - INFO - {DONE}",
    ]
    return {"train.log": text(rows)}


def long_evaluation() -> Files:
    """An evaluation of forty minutes with one line at either end, and a run that goes on."""
    rows = [
        *megatron(range(100, 130), 0),
        f"[{at(160)}] Running evaluation on the validation set",
        f"[{at(2560)}] evaluation took 2400.1 s",
        " validation loss at iteration 130 | lm loss value: 2.1E+00 | lm loss PPL: 8.2E+00 |",
        *megatron(range(130, 150), 2565),
        "[after training is done] datetime: 2026-03-14 02:46:00",
    ]
    return {"node0.log": text(rows)}


def exit_noise() -> Files:
    """A clean end with the usual grumbling of torch, NCCL and Python at exit."""
    rows = [
        *titan(range(1, 50), 0),
        f"[titan] {at(160)} - root - INFO - {DONE}",
        f"[rank0]:{glog(162, 'W', 'ProcessGroupNCCL.cpp:1496')} Warning: WARNING: "
        "destroy_process_group() was not called "
        "before program exit, which can leak resources. For more info, please see "
        "https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())",
        "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3a>",
        *trace(
            "AssertionError: can only test a child process",
            file="/opt/conda/lib/python3.11/multiprocessing/process.py",
            function="is_alive",
        ),
        "/opt/conda/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: "
        "resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown",
        f"[rank3]:{glog(163, 'W', 'TCPStore.cpp:106')} [c10d] sendBytes failed on SocketImpl(fd=68, "
        "addr=[localhost]:51432, remote=[localhost]:29500): Broken pipe",
        f"[rank3]:{glog(163, 'W', 'ProcessGroupNCCL.cpp:1659')} [PG ID 0 PG GUID 0(default_pg) Rank "
        '3] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut '
        "down too early), with error: Broken pipe",
    ]
    return {"train.log": text(rows)}


def barrier_warning() -> Files:
    """torch says "can potentially cause a hang"; it did not."""
    warn = [
        f"[rank{r}]:{glog(1, 'W', 'ProcessGroupNCCL.cpp:4561')} [PG ID 0 PG GUID 0 Rank {r}]  using "
        f"GPU {r} to perform barrier as devices used by this process are "
        "currently unknown. This can potentially cause a hang if this rank to GPU mapping is "
        "incorrect. Specify device_ids in barrier() to force use of a particular device."
        for r in range(4)
    ]
    return {"train.log": text(warn, titan(range(1, 50), 5), f"[titan] {at(200)} - root - INFO - {DONE}")}


def nccl_debug() -> Files:
    """NCCL_DEBUG=INFO in a healthy run: "Failed", "error", "timeout", "abort" everywhere."""
    rows: list[str] = []
    for r in range(4):
        h = f"gpu-a1:{8000 + r}:{8100 + r} [{r}] NCCL"
        rows += [
            f"{h} INFO NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.",
            f"{h} INFO NET/IB : No device found.",
            f"{h} INFO NCCL_IB_TIMEOUT set by environment to 22.",
            f"{h} INFO NCCL_IB_RETRY_CNT set by environment to 13.",
            f"{h} INFO ncclCommInitRankConfig comm 0x55d0{r} rank {r} nranks 4 cudaDev {r} nvmlDev "
            f"{r} busId {1 + r}b000 commId 0x9d3 - Init COMPLETE",
        ]
    rows += [*titan(range(1, 60), 5), f"[titan] {at(200)} - root - INFO - {DONE}"]
    rows += [
        f"gpu-a1:{8000 + r}:{8200 + r} [{r}] NCCL INFO comm 0x55d0{r} rank {r} nranks 4 cudaDev {r} "
        f"busId {1 + r}b000 - Abort COMPLETE"
        for r in range(4)
    ]
    return {"slurm-4711.out": text(rows)}


def tests_in_log() -> Files:
    """A self-test of the error paths before training: expected errors, printed as such."""
    rows = [
        "self-test: the next error is expected",
        *trace(
            "RuntimeError: CUDA error: device-side assert triggered",
            file="/workspace/selftest.py",
            function="expect_assert",
        ),
        "self-test: ok",
        "self-test: the next error is expected",
        *trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4096.00 GiB.",
            file="/workspace/selftest.py",
            function="expect_oom",
        ),
        "self-test: ok, 2 of 2 passed",
        *titan(range(1, 60), 30),
        f"[titan] {at(300)} - root - INFO - {DONE}",
    ]
    return {"train.log": text(rows)}


def nan_words() -> Files:
    """Skipped iterations with a loss scale that falls, as mixed precision does, and a healthy end."""
    rows = megatron(range(1, 20), 0)
    rows += [
        f" [{at(100, '%Y-%m-%d %H:%M:%S')}] iteration       20/     100 | consumed samples:        "
        "10240 | elapsed time per iteration (ms): 4800.1 | loss scale: 65536.0 | grad norm: inf | "
        "number of skipped iterations:   1 | number of nan iterations:   0 |",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 32768.0",
    ]
    return {
        "node0.log": text(
            rows, megatron(range(21, 100), 110), "[after training is done] datetime: 2026-03-14 02:20:00"
        )
    }


def retry_recovered_each_step() -> Files:
    """A store that needs a second try now and then; the job finishes."""
    rows: list[str] = []
    for n in range(6):
        rows += [
            f"{at(40 * n)} WARNING s3: connection reset by peer while reading shard-{n:05}.tar, retrying 1/5",
            f"{at(40 * n + 1)} WARNING s3: read timed out, retrying 2/5",
            *titan(range(10 * n, 10 * n + 10), 40 * n + 3),
        ]
    return {"train.log": text(rows, f"{DONE}")}


def dmesg_calm() -> Files:
    """A kernel log of a healthy node beside a healthy job: link flaps at boot, corrected errors."""
    kernel = [
        "[    4.101] pcieport 0000:00:01.1: AER: Corrected error received: 0000:3b:00.0",
        "[   12.700] mlx5_core 0000:5e:00.0 ib0: Link down",
        "[   15.100] mlx5_core 0000:5e:00.0 ib0: Link up",
        "[   20.000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15",
        "[ 9001.001] perf: interrupt took too long (2503 > 2500), lowering "
        "kernel.perf_event_max_sample_rate to 79000",
        "[ 9100.001] TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.",
    ]
    return {"train.log": text(titan(range(1, 90), 0), DONE), "dmesg.txt": text(kernel)}


def user_prints_culprit() -> Files:
    """Text that another program printed: verdicts that are none of ours."""
    rows = [
        *titan(range(1, 50), 0),
        "runbook: if you see `Culprit rank 3; Error type: COLLECTIVE_TIMEOUT`, call the network team",
        "runbook: 'Watchdog caught collective operation timeout' usually means that another rank is slow",
        "tip: rank 5 OOM is fixed by --micro-batch-size 1",
        *titan(range(50, 99), 160),
        DONE,
    ]
    return {"train.log": text(rows)}


INCIDENTS = (
    Wild("config_dump", config_dump, FINE, calm=True),
    Wild("handled_tracebacks", handled_tracebacks, FINE, calm=True),
    Wild("handled_then_running", handled_then_running, FINE, calm=True),
    Wild("rank_handled_oom", rank_handled_oom, FINE, calm=True),
    Wild("wandb_noise", wandb_noise, FINE, calm=True),
    Wild("long_save", long_save, FINE, calm=True),
    Wild("long_evaluation", long_evaluation, FINE, calm=True),
    Wild("exit_noise", exit_noise, FINE, calm=True),
    Wild("barrier_warning", barrier_warning, FINE, calm=True),
    Wild("nccl_debug", nccl_debug, FINE, calm=True),
    Wild("tests_in_log", tests_in_log, FINE, calm=True),
    Wild("nan_words", nan_words, FINE, calm=True),
    Wild("retry_recovered_each_step", retry_recovered_each_step, FINE, calm=True),
    Wild("dmesg_calm", dmesg_calm, FINE, calm=True),
    Wild("user_prints_culprit", user_prints_culprit, FINE, calm=True),
)
