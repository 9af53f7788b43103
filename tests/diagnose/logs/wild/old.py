"""Old news and others' news: handled errors, other jobs, foreign processes, clocks that differ."""

from tests.diagnose.logs.wild.lines import at, closing, failed, glog, megatron, text, timeout, titan, trace
from tests.diagnose.logs.wild.model import Files, Wild


def handled_oom_rank0_logs() -> Files:
    """Rank 2 catches an OOM at warm-up; only rank 0 prints steps; an hour later rank 6 really fails."""
    rows = [
        "[rank2]: " + r
        for r in (
            f"{at(5)} INFO batch size 64 does not fit, trying 32:",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.",
        )
    ]
    rows += titan(range(1, 900), 10, front="[rank0]: ")
    rows += [
        f"[rank6]: {at(3000)} ERROR crashed",
        *trace("KeyError: 'labels'", 6, file="/workspace/collate.py"),
    ]
    return {"train.log": text(rows)}


def handled_sample_rank0_logs() -> Files:
    """Rank 3 logs a broken sample with its traceback and goes on; rank 0 prints steps; then a cancel."""
    rows = [
        f"[rank3]: {at(50)} WARNING skipping sample 991:",
        *trace(
            "PIL.UnidentifiedImageError: cannot identify image file",
            3,
            file="/workspace/dataset.py",
            function="__getitem__",
        ),
    ]
    rows += titan(range(20, 900), 60, front="[rank0]: ")
    rows += [
        f"slurmstepd: error: *** JOB 88 ON gpu-a1 CANCELLED AT {at(2705, '%Y-%m-%dT%H:%M:%S')} DUE "
        "TO PREEMPTION ***"
    ]
    return {"train.log": text(rows)}


def old_xid() -> Files:
    """A kernel log of weeks: the XID is a week older than the job, which ran to its end."""
    init = [
        f"gpu-a1:{8000 + r}:{8100 + r} [{r}] NCCL INFO ncclCommInitRankConfig comm 0x55d0{r} rank "
        f"{r} nranks 4 cudaDev {r} nvmlDev {r} busId {1 + r}b000 commId 0x9d3 - Init COMPLETE"
        for r in range(4)
    ]
    kernel = [
        "[Sat Mar  7 11:00:01 2026] NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', "
        "name=<unknown>, GPU has fallen off the bus.",
        "[Sat Mar  7 12:00:01 2026] reboot: Restarting system",
        "[Sat Mar 14 01:00:01 2026] NVRM: loading NVIDIA UNIX Open Kernel Module",
    ]
    return {
        "gpu-a1.log": text(
            init, titan(range(1, 60), 0), f"[titan] {at(300)} - root - INFO - Training completed"
        ),
        "dmesg-gpu-a1.txt": text(kernel),
    }


def old_xid_then_failure() -> Files:
    """The same old XID, and a job in which rank 3 raises an exception of its own."""
    files = old_xid()
    files["gpu-a1.log"] = text(
        str(files["gpu-a1.log"]).replace("Training completed", "step done").rstrip(),
        trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
    )
    return files


def xid_of_stranger() -> Files:
    """A kernel log of a machine that is not in the job; its bus ids are those of every machine."""
    files = old_xid()
    files["dmesg-gpu-z9.txt"] = text(
        [
            f"{at(120, '%b %d %H:%M:%S')} gpu-z9 kernel: NVRM: Xid (PCI:0000:2b:00): 79, "
            "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
        ]
    )
    files.pop("dmesg-gpu-a1.txt")
    files["gpu-a1.log"] = text(
        str(files["gpu-a1.log"]).replace("Training completed", "step done").rstrip(),
        trace("KeyError: 'labels'", 3, file="/workspace/collate.py"),
    )
    return files


def xid_of_other_process() -> Files:
    """XID 43 of a process that is none of the job's, on a shared machine; the job trains on."""
    files = old_xid()
    files.pop("dmesg-gpu-a1.txt")
    files["dmesg"] = text(
        [
            f"{at(30, '%b %d %H:%M:%S')} gpu-a1 kernel: NVRM: Xid (PCI:0000:2b:00): 43, pid=77123, "
            "name=python3, Ch 00000008"
        ]
    )
    return files


def kernel_kills_other() -> Files:
    """The OOM killer took somebody's notebook; the job ran to its end."""
    kernel = [
        f"{at(120, '%b %d %H:%M:%S')} gpu-a1 kernel: Out of memory: Killed process 99120 "
        "(jupyter-lab) total-vm:9812kB, anon-rss:8123kB"
    ]
    return {
        "train.log": text(titan(range(1, 60), 0), f"[titan] {at(300)} - root - INFO - Training completed"),
        "syslog": text(kernel),
    }


def appended_runs() -> Files:
    """`>> train.log` of two runs: the first died of rank 3's OOM, the second of rank 1's bug."""
    rows = [
        *titan(range(1, 30), 0),
        *trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            3,
            file="/workspace/model.py",
        ),
        "$ torchrun --nproc-per-node 4 train.py --micro-batch 1",
    ]
    rows += [*titan(range(1, 60), 4000), *trace("KeyError: 'labels'", 1, file="/workspace/collate.py")]
    return {"train.log": text(rows)}


def jobs_a_day_apart() -> Files:
    """Two jobs of one folder hung a day apart: rank 2 of the first is not ahead of the second's ranks."""
    first = [row for r in (0, 1, 2) for row in timeout(r, 700, 412)]
    second = [row for r in (3, 0, 1) for row in timeout(r, 90_000, 9)]
    return {"slurm-1.out": text(first), "slurm-2.out": text(second)}


def jobs_of_two_folders() -> Files:
    """The same with a file a rank, each job in its folder, and one file of the first is left."""
    files: Files = {"job1/rank3.log": text(titan(range(1, 30), 0), timeout(3, 700, 411))}
    for rank in (0, 1, 2):
        files[f"job2/rank{rank}.log"] = text(titan(range(1, 30), 80_000), timeout(rank, 90_000, 412))
    return files


def epoch_is_no_end() -> Files:
    """Rank 0 says that it finished an epoch and evaluates; the others go on to a barrier and time out."""
    files: Files = {}
    for rank in range(8):
        rows = titan(range(1, 30), 0, front=f"[rank{rank}]: ")
        rows += (
            [f"[rank0]: {at(95)} Finished training epoch 3, starting evaluation"]
            if rank == 0
            else [*titan([30], 97, front=f"[rank{rank}]: "), *timeout(rank, 700, 412, "ALLREDUCE", 1)]
        )
        files[f"rank{rank}.log"] = text(rows)
    return files


def words_in_data() -> Files:
    """Generated text is printed: stack traces, kills and NaNs that a language model wrote."""
    sample = [
        "sample 0 prompt: 'why did my job die?'",
        "sample 0 output:",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "ZeroDivisionError: division by zero",
        "srun: error: node17: task 3: Killed",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "slurmstepd: error: *** JOB 1 ON node17 CANCELLED AT 2020-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "end of sample 0",
    ]
    return {
        "train.log": text(
            titan(range(1, 30), 0),
            sample,
            titan(range(30, 60), 100),
            f"[titan] {at(300)} - root - INFO - Training completed",
        )
    }


def stale_nccl_warn() -> Files:
    """NCCL warns of a link at the start and works; hours later rank 1 has a bug."""
    rows = [
        "gpu-a1:8001:8101 [1] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_create_qp failed",
        "gpu-a1:8001:8101 [1] NCCL WARN NET/IB : Got async event : port error",
        *megatron(range(1, 900), 0),
        *trace("KeyError: 'labels'", 1, file="/workspace/collate.py"),
    ]
    return {"node0.log": text(rows)}


def store_warnings_only() -> Files:
    """A store that answers late for a while: warnings, no end, steps go on."""
    warn = [
        f"[rank{r}]:{glog(30 + r, 'W', 'TCPStore.cpp:125')} [c10d] recvValue failed on "
        f"SocketImpl(fd=3, addr=[gpu-a1]:41{r}, remote=[gpu-a1]:29500): Connection reset by peer"
        for r in range(4)
    ]
    return {"train.log": text(titan(range(1, 10), 0), warn, titan(range(10, 90), 40))}


def skewed_exceptions() -> Files:
    """Two machines, one clock a minute behind: rank 6's later error has the earlier time."""
    files: Files = {}
    for rank in range(8):
        lag = 60.0 if rank >= 4 else 0.0
        rows = titan(range(1, 60), 1000 - lag, front=f"[rank{rank}]: ")
        if rank == 1:
            rows += [
                f"[rank1]: {at(1180)} ERROR crashed",
                *trace("KeyError: 'labels'", 1, file="/workspace/collate.py"),
            ]
        if rank == 6:
            rows += [
                f"[rank6]: {at(1190 - lag)} ERROR crashed",
                *trace("ValueError: reply of rank 1 is empty", 6, file="/workspace/exchange.py"),
            ]
        files[f"{'gpu-a1' if rank < 4 else 'gpu-b2'}/rank{rank}.log"] = text(rows)
    return files


def heartbeat_of_one_log() -> Files:
    """One log of a heartbeat that stopped, of eight: that rank may just be the one that was kept."""
    rows = [
        *titan(range(1, 30), 0),
        f"[rank4]:{glog(590, file='ProcessGroupNCCL.cpp:1542')} [PG ID 0 PG GUID 0(default_pg) Rank "
        "4] Heartbeat monitor timed out! Process will be terminated after dumping debug info. "
        "workMetaList_.size()=3",
    ]
    return {"rank4.log": text(rows)}


def bash_killed() -> Files:
    """A shell says Killed; the process is the launcher or a rank, nobody knows."""
    return {
        "slurm-88.out": text(
            megatron(range(1, 20), 0),
            "/var/spool/slurmd/job88/slurm_script: line 40:  4100 Killed                  python train.py",
        )
    }


def fatal_python() -> Files:
    """faulthandler on rank 3: a segmentation fault with Python's stack."""
    rows = [
        *titan(range(1, 30), 0),
        *(
            "[rank3]: " + r
            for r in (
                "Fatal Python error: Segmentation fault",
                "",
                "Current thread 0x00007f2a (most recent call first):",
                '  File "/workspace/kernels.py", line 88 in fused',
            )
        ),
        *closing(100, (500, 501, 502)),
        *failed(101, -11, 3, 503),
    ]
    return {"train.log": text(rows)}


SOFT = ("software_error", "inconclusive")
ERROR = ("software_error",)
INCIDENTS = (
    Wild("handled_oom_rank0_logs", handled_oom_rank0_logs, SOFT, culprits=(6,)),
    Wild(
        "handled_sample_rank0_logs", handled_sample_rank0_logs, ("external_stop", "inconclusive"), calm=True
    ),
    Wild("old_xid", old_xid, ("healthy", "inconclusive"), calm=True),
    Wild("old_xid_then_failure", old_xid_then_failure, ("software_error",), culprits=(3,)),
    Wild(
        "xid_of_stranger",
        xid_of_stranger,
        ("software_error", "hardware_fault", "inconclusive"),
        may_convict=(3,),
    ),
    Wild("xid_of_other_process", xid_of_other_process, ("healthy", "inconclusive"), calm=True),
    Wild("kernel_kills_other", kernel_kills_other, ("healthy", "inconclusive"), calm=True),
    Wild("appended_runs", appended_runs, ("software_error",), culprits=(1,)),
    Wild("jobs_a_day_apart", jobs_a_day_apart, ("inconclusive", "fabric_stalled"), world=4),
    Wild("jobs_of_two_folders", jobs_of_two_folders, ("inconclusive", "fabric_stalled"), world=4),
    Wild(
        "epoch_is_no_end", epoch_is_no_end, ("rank_stalled", "inconclusive"), suspects=(0,), may_convict=(0,)
    ),
    Wild("words_in_data", words_in_data, ("healthy", "inconclusive"), calm=True),
    Wild("stale_nccl_warn", stale_nccl_warn, ERROR, culprits=(1,)),
    Wild("store_warnings_only", store_warnings_only, ("healthy", "inconclusive"), calm=True),
    Wild("skewed_exceptions", skewed_exceptions, SOFT, may_convict=(1,)),
    Wild("heartbeat_of_one_log", heartbeat_of_one_log, ("inconclusive", "rank_stalled"), world=8),
    Wild("bash_killed", bash_killed, ("rank_exited", "host_oom", "inconclusive"), calm=True),
    Wild("fatal_python", fatal_python, ("rank_exited",), culprits=(3,)),
)
