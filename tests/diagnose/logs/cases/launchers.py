"""What launchers say (torchrun, srun, DeepSpeed, Ray), and the prefixes that collectors add."""

from typing import TYPE_CHECKING

from tests.diagnose.logs.cases import clock

if TYPE_CHECKING:
    from tests.diagnose.logs.cases.incident import Incident

NAMES = {-6: "SIGABRT", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM", -7: "SIGBUS"}
WORDS = {
    -6: "Aborted (core dumped)",
    -9: "Killed",
    -11: "Segmentation fault",
    -15: "Terminated",
    -7: "Bus error",
}


def prefix(incident: "Incident", rank: int | None, node: int, src: str) -> str:
    """What the collector puts in front of each line of a speaker."""
    kind = incident.dress.prefix
    host = incident.host(node)
    if kind == "default" and rank is not None:
        return f"[default{incident.local(rank)}]:"
    if kind == "label" and rank is not None:
        return f"{rank}: "
    if kind == "ray" and rank is not None:
        return f"(RayTrainWorker pid={incident.pid(rank)}, ip=10.0.0.{10 + node}) "
    if kind == "pdsh" and src != "slurm":
        return f"{host}: "
    if kind == "cloud":
        return f"train-4411.{host} [stderr] "
    return ""


def agent_line(incident: "Incident", t: float, level: str, text: str) -> list[str]:
    """A line of torchrun's agent in the form of the torch that wrote it; only torchrun has agents."""
    if incident.dress.launcher != "torchrun":
        return []
    if text.startswith(
        ("Traceback", "====", "torch.distributed.elastic.multiprocessing.errors", "run_id", "  ")
    ):
        return [text]
    module = "agent/server/api.py:906" if text.startswith("[default]") else "multiprocessing/api.py:900"
    if incident.dress.era in ("new", "half"):
        return [f"{level}{clock.glog_python(t)} 3999 torch/distributed/elastic/{module}] {text}"]
    word = {"W": "WARNING", "E": "ERROR", "I": "INFO"}[level]
    logger = f"torch.distributed.elastic.{module.partition('.py')[0].replace('/', '.')}"
    if incident.dress.era == "mid":
        return [f"[{clock.python(t)}] {logger}: [{word}] {text}"]
    return [f"{word}:{logger}:{text}"]


def banner(incident: "Incident", t: float) -> None:
    """What a launcher says when it starts the ranks."""
    per, world = incident.per_node, incident.world
    for node in range(incident.nodes):
        mine = list(range(node * per, min((node + 1) * per, world)))
        if incident.dress.launcher == "torchrun":
            incident.agent(
                t,
                node,
                "[default] Rendezvous complete for workers. Result:\n"
                f"  restart_count={incident.attempt}\n  master_addr=gpu-a0\n  master_port=29500\n"
                f"  group_rank={node}\n  group_world_size={incident.nodes}\n"
                f"  local_ranks={list(range(len(mine)))}\n  role_ranks={mine}\n  global_ranks={mine}\n"
                f"  role_world_sizes={[world] * len(mine)}\n  global_world_sizes={[world] * len(mine)}\n",
                "I",
            )
    if incident.dress.launcher == "deepspeed":
        hosts = {incident.host(n): list(range(min(per, world - n * per))) for n in range(incident.nodes)}
        incident.slurm(t, f"[{clock.python(t)}] [INFO] [launch.py:146:main] WORLD INFO DICT: {hosts}")
        incident.slurm(t, f"[{clock.python(t)}] [INFO] [launch.py:164:main] dist_world_size={world}")


def ended(
    incident: "Incident", t: float, ends: dict[int, tuple[int, float]], restarting: bool = False
) -> None:
    """The launcher sees ranks end, stops the rest and says so.

    `ends`: rank -> (exit code, seconds) of those that ended by themselves; all others are closed.
    """
    kind = incident.dress.launcher
    ends = {rank: end for rank, end in ends.items() if rank not in incident.lost}
    if kind == "torchrun":
        _torchrun(incident, t, ends)
    elif kind == "srun":
        _srun(incident, t, ends)
    elif kind == "deepspeed":
        _deepspeed(incident, t, ends)
    else:
        _ray(incident, t, ends)


def _torchrun(incident: "Incident", t: float, ends: dict[int, tuple[int, float]]) -> None:
    for node in range(incident.nodes):
        mine = [r for r in incident.ranks if incident.node(r) == node]
        failed = {r: ends[r] for r in mine if r in ends and ends[r][0] != 0}
        if not failed:
            if ends:
                _closed_from_outside(incident, t + 3, node, mine)
            continue
        for rank in mine:
            if rank not in ends:
                incident.agent(t, node, f"Sending process {incident.pid(rank)} closing signal SIGTERM")
        first = min(failed, key=lambda r: (failed[r][1], r))
        incident.agent(
            t + 1,
            node,
            f"failed (exitcode: {failed[first][0]}) local_rank: {incident.local(first)} "
            f"(pid: {incident.pid(first)}) of binary: /opt/env/bin/python3",
            "E",
        )
        incident.agent(t + 1.1, node, _block(incident, failed, first, node))


def _closed_from_outside(incident: "Incident", t: float, node: int, mine: list[int]) -> None:
    incident.agent(t, node, "Received 15 death signal, shutting down workers")
    for rank in mine:
        incident.agent(t, node, f"Sending process {incident.pid(rank)} closing signal SIGTERM")


def _block(incident: "Incident", failed: dict[int, tuple[int, float]], first: int, node: int) -> str:
    """torchrun's closing table. Its times are whole seconds: near ones tie."""
    rows = [
        "Traceback (most recent call last):",
        '  File "/opt/env/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
    ]
    others = [r for r in sorted(failed, key=lambda r: (failed[r][1], r)) if r != first]
    for i, rank in enumerate(others, 1):
        rows += [f"[{i}]:", *_row(incident, failed, rank, node)]
    if not others:
        rows.append("  <NO_OTHER_FAILURES>")
    rows += [
        "-" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        *_row(incident, failed, first, node),
        "=" * 60,
    ]
    return "\n".join(rows)


def _row(incident: "Incident", failed: dict[int, tuple[int, float]], rank: int, node: int) -> list[str]:
    code, at = failed[rank]
    name = NAMES.get(code)
    why = (
        f"Signal {-code} ({name}) received by PID {incident.pid(rank)}"
        if name
        else ("To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
    )
    return [
        f"  time      : {clock.block(at)}",
        f"  host      : {incident.host(node)}",
        f"  rank      : {rank} (local_rank: {incident.local(rank)})",
        f"  exitcode  : {code} (pid: {incident.pid(rank)})",
        "  error_file: <N/A>",
        f"  traceback : {why}",
    ]


def _srun(incident: "Incident", t: float, ends: dict[int, tuple[int, float]]) -> None:
    for rank, (code, at) in sorted(ends.items(), key=lambda end: end[1][1]):
        if code == 0:
            continue
        word = WORDS.get(code, f"Exited with exit code {code}")
        incident.slurm(at + 0.4, f"srun: error: {incident.host(incident.node(rank))}: task {rank}: {word}")
    if any(code for code, _ in ends.values()):
        incident.slurm(t + 30, "srun: Terminating StepId=4411.0")
        stamp = clock.slurm(t + 30)
        incident.slurm(t + 30, f"slurmstepd: error: *** STEP 4411.0 ON gpu-a0 CANCELLED AT {stamp} ***")
        incident.slurm(t + 31, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")


def _deepspeed(incident: "Incident", t: float, ends: dict[int, tuple[int, float]]) -> None:
    first = min((r for r in ends if ends[r][0]), key=lambda r: (ends[r][1], r), default=None)
    if first is None:
        return
    node = incident.node(first)
    said = f"{incident.host(node)}: [{clock.python(t)}]"
    for rank in incident.ranks:
        if incident.node(rank) == node:
            killing = f"[INFO] [launch.py:319:sigkill_handler] Killing subprocess {incident.pid(rank)}"
            incident.slurm(t, f"{said} {killing}", node)
    argv = f"['/opt/env/bin/python3', '-u', 'train.py', '--local_rank={incident.local(first)}']"
    what = f"{argv} exits with return code = {ends[first][0]}"
    incident.slurm(t + 1, f"{said} [ERROR] [launch.py:325:sigkill_handler] {what}", node)


def _ray(incident: "Incident", t: float, ends: dict[int, tuple[int, float]]) -> None:
    for rank, (code, at) in sorted(ends.items(), key=lambda end: end[1][1]):
        if code == 0:
            continue
        ip = f"10.0.0.{10 + incident.node(rank)}"
        incident.slurm(
            at + 0.4,
            f"(raylet, ip={ip}) A worker died or was killed while executing a task by an unexpected system "
            f"error. Worker IP address: {ip} Worker PID: {incident.pid(rank)} Worker exit type: SYSTEM_ERROR "
            "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. "
            "There "
            "are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high "
            "memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to "
            "SIGSEGV or other unexpected errors.",
        )
