"""Lines as torch, NCCL, launchers and frameworks write them, at `t` seconds of one night."""

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from signal import Signals

NIGHT = datetime(2026, 3, 14, 2, 0, 0, tzinfo=timezone.utc)


def at(t: float, form: str = "%Y-%m-%d %H:%M:%S,%f", zone_h: float = 0.0) -> str:
    """A clock time; three digits of a second where the form has them."""
    text = (NIGHT + timedelta(seconds=t, hours=zone_h)).strftime(form)
    return text[:-3] if form.endswith("%f") else text


def glog(t: float, level: str = "E", file: str = "ProcessGroupNCCL.cpp:632") -> str:
    stamp = (NIGHT + timedelta(seconds=t)).strftime("%m%d %H:%M:%S.%f")
    return f"[{level}{stamp}000 {file}]"


def timeout(
    rank: int,
    t: float,
    seq: int,
    op: str = "ALLREDUCE",
    numel: int = 4096,
    limit_ms: int = 600_000,
    *,
    out: int | None = None,
    enqueued: int | None = None,
    completed: int | None = None,
    group: str = "0(default_pg)",
    group_id: int = 0,
    group_rank: int | None = None,
    own: bool = True,
) -> list[str]:
    """A watchdog's report of a timeout and its progress, torch 2.6 and later."""
    inside = rank if group_rank is None else group_rank
    front = f"[rank{rank}]:" if own else ""
    tag = f"[PG ID {group_id} PG GUID {group} Rank {inside}]"
    enqueued = seq if enqueued is None else enqueued
    completed = seq - 1 if completed is None else completed
    return [
        f"{front}{glog(t)} [Rank {inside}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, "
        f"OpType={op}, NumelIn={numel}, NumelOut={numel if out is None else out}, "
        f"Timeout(ms)={limit_ms}) ran for "
        f"{limit_ms + 37 + 3 * rank} milliseconds before timing out.",
        f"{front}{glog(t + 0.001, file='ProcessGroupNCCL.cpp:2268')} {tag}  failure detected by "
        "watchdog at work "
        f"sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}",
    ]


def going_down(rank: int, t: float, group: str = "0(default_pg)", group_id: int = 0) -> list[str]:
    """How a watchdog ends its process."""
    front = f"[rank{rank}]:"
    tag = f"[PG ID {group_id} PG GUID {group} Rank {rank}]"
    return [
        f"{front}{glog(t, file='ProcessGroupNCCL.cpp:684')} {tag} Some NCCL operations have failed "
        "or timed out. "
        "Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.",
        f"{front}{glog(t, file='ProcessGroupNCCL.cpp:698')} {tag} To avoid data inconsistency, we "
        "are taking the "
        "entire process down.",
    ]


def observed(rank: int, t: float) -> str:
    return (
        f"[rank{rank}]:{glog(t, file='ProcessGroupNCCL.cpp:1685')} [PG ID 0 PG GUID 0(default_pg) "
        f"Rank {rank}] "
        "Observed flight recorder dump signal from another rank via TCPStore."
    )


def titan(steps: Iterable[int], t: float, every_s: float = 3.0, front: str = "") -> list[str]:
    """torchtitan's step lines."""
    return [
        f"{front}[titan] {at(t + n * every_s)} - root - INFO - step: {step:2}  loss:  "
        f"{2.4 - 0.0001 * step:.5f}  "
        f"grad_norm:  1.0213  memory: 61.38GiB(77.42%)  tps: 3,412  tflops: 413.90  mfu: 41.85%"
        for n, step in enumerate(steps)
    ]


def megatron(steps: Iterable[int], t: float, every_s: float = 5.0) -> list[str]:
    """Megatron-LM's step lines."""
    return [
        f" [{at(t + n * every_s, '%Y-%m-%d %H:%M:%S')}] iteration {step:8}/  100000 | consumed samples: "
        f"{step * 512:12} | elapsed time per iteration (ms): 4812.3 | throughput per GPU "
        "(TFLOP/s/GPU): 411.2 | "
        f"learning rate: 2.9E-04 | global batch size:   512 | lm loss: 2.113E+00 | grad norm: 0.412 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
        for n, step in enumerate(steps)
    ]


def closing(t: float, pids: Iterable[int], front: str = "") -> list[str]:
    return [
        f"{front}W{(NIGHT + timedelta(seconds=t)).strftime('%m%d %H:%M:%S.%f')} 4100 "
        f"torch/distributed/elastic/multiprocessing/api.py:900] Sending process {pid} closing signal SIGTERM"
        for pid in pids
    ]


def failed(t: float, code: int, local: int, pid: int, front: str = "") -> list[str]:
    return [
        f"{front}E{(NIGHT + timedelta(seconds=t)).strftime('%m%d %H:%M:%S.%f')} 4100 "
        f"torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) "
        f"local_rank: {local} "
        f"(pid: {pid}) of binary: /opt/conda/bin/python3.11"
    ]


def block(
    t: float,
    root: tuple[int, int, int, int],
    others: Iterable[tuple[int, int, int, int]] = (),
    host: str = "gpu-a1",
    said: str = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
) -> list[str]:
    """torchrun's closing block; each failure is (rank, local rank, exit code, pid)."""

    def one(n: int, failure: tuple[int, int, int, int], tt: float) -> list[str]:
        rank, local, code, pid = failure
        text = said if code > 0 else f"Signal {-code} ({Signals(-code).name}) received by PID {pid}"
        return [
            f"[{n}]:",
            f"  time      : {at(tt, '%Y-%m-%d_%H:%M:%S')}",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {local})",
            f"  exitcode  : {code} (pid: {pid})",
            "  error_file: <N/A>",
            f"  traceback : {text}",
        ]

    rest = list(others)
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/conda/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        '  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line '
        "277, in launch_agent",
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "============================================================",
        "train.py FAILED",
        "------------------------------------------------------------",
        "Failures:",
    ]
    if rest:
        for n, failure in enumerate(rest, 1):
            lines += one(n, failure, t)
    else:
        lines += ["  <NO_OTHER_FAILURES>"]
    lines += [
        "------------------------------------------------------------",
        "Root Cause (first observed failure):",
    ]
    lines += one(0, root, t)
    return [*lines, "============================================================"]


def trace(
    error: str,
    rank: int | None = None,
    *,
    file: str = "/workspace/train.py",
    function: str = "main",
    before: Iterable[tuple[str, str]] = (),
) -> list[str]:
    """A Python traceback that ends in `error`."""
    front = "" if rank is None else f"[rank{rank}]: "
    rows = ["Traceback (most recent call last):"]
    for path, func in (*before, (file, function)):
        rows += [f'  File "{path}", line 211, in {func}', "    out = step(batch)"]
    return [front + row for row in (*rows, *error.split("\n"))]


def text(*parts: str | Iterable[str], end: str = "\n") -> str:
    rows: list[str] = []
    for part in parts:
        rows += [part] if isinstance(part, str) else list(part)
    return end.join(rows) + end
