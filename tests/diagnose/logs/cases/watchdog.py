"""What ProcessGroupNCCL's watchdog and heartbeat monitor say, as three generations of torch word it."""

from dataclasses import dataclass

from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Group

WORLD_CALLS = 77
"""How many calls the default group has seen in jobs that train in other groups."""

_MOST_LIKELY = (
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the "
    "order of collectives is not same for all ranks or the scheduled collective, for some reason, didn't "
    "run. "
    "Additionally, this can be caused by GIL deadlock or other reasons such as network errors or bugs in the "
    "communications library (e.g. NCCL), etc. "
)


@dataclass(frozen=True)
class Wait:
    """The collective in which ranks wait, as they report it. `limit_s`: the group's timeout."""

    seq: int
    op: str = "ALLREDUCE"
    numel_in: int = 4194304
    numel_out: int = 4194304
    enqueued: int | None = None
    completed: int | None = None
    limit_s: int = 600

    @property
    def last_enqueued(self) -> int:
        return self.seq if self.enqueued is None else self.enqueued

    @property
    def last_completed(self) -> int:
        return self.seq - 1 if self.completed is None else self.completed


def tag(incident: Incident, rank: int, group: Group) -> str:
    """The group's tag. The rank in it is the rank inside that group."""
    inside = group.rank_in(rank)
    if incident.dress.era == "new":
        return f"[PG ID {group.tag} PG GUID {group.tag}({group.name}) Rank {inside}]"
    if incident.dress.era in ("mid", "half"):
        return (
            f"[PG {group.tag} ({group.name}) Rank {inside}]"
            if group.default
            else f"[PG {group.tag} Rank {inside}]"
        )
    return f"[Rank {inside}]"


def work(incident: Incident, wait: Wait) -> str:
    sizes = f"NumelIn={wait.numel_in}, NumelOut={wait.numel_out}, " if incident.dress.era != "old" else ""
    return f"WorkNCCL(SeqNum={wait.seq}, OpType={wait.op}, {sizes}Timeout(ms)={wait.limit_s * 1000})"


def times_out(incident: Incident, t: float, rank: int, wait: Wait, group: Group | None = None) -> None:
    """All that a rank says whose own watchdog saw a collective time out."""
    group = group or incident.default
    era = incident.dress.era
    inside, tagged = group.rank_in(rank), tag(incident, rank, group)
    ran = f"ran for {wait.limit_s * 1000 + 12 + rank * 7 % 90} milliseconds before timing out."
    caught = "Caught" if era == "old" else "Watchdog caught"
    timeout = f"[Rank {inside}] {caught} collective operation timeout: {work(incident, wait)} {ran}"
    progress = (
        f"last enqueued NCCL work: {wait.last_enqueued}, last completed NCCL work: {wait.last_completed}."
    )
    incident.c10(
        t, rank, timeout, where="ProcessGroupNCCL.cpp:685" if era == "new" else "ProcessGroupNCCL.cpp:563"
    )
    if era in ("new", "half"):
        _announces(incident, t, rank, wait, group)
    if era != "old":
        incident.c10(t + 0.01, rank, f"{tagged} Timeout at NCCL work: {wait.seq}, {progress}")
    dies(incident, t + 0.02, rank, timeout, group)


def _announces(incident: Incident, t: float, rank: int, wait: Wait, group: Group) -> None:
    tagged = tag(incident, rank, group)
    status = f"last enqueued work: {wait.last_enqueued}, last completed work: {wait.last_completed}"
    words = f" failure detected by watchdog at work sequence id: {wait.seq} PG status: {status}"
    if incident.dress.era == "half":
        words = (
            f"Exception (either an error or timeout) detected by watchdog at work: {wait.seq}, "
            f"{status.replace('work', 'NCCL work')}."
        )
    incident.c10(t + 0.001, rank, f"{tagged} {words}", where="ProcessGroupNCCL.cpp:1785")
    incident.c10(
        t + 0.002,
        rank,
        "Stack trace of the failed collective not found, potentially because FlightRecorder is "
        "disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
        where="ProcessGroupNCCL.cpp:732",
    )
    incident.c10(
        t + 0.003,
        rank,
        f"{tagged} First PG on this rank to signal dumping.",
        where="ProcessGroupNCCL.cpp:2080",
    )
    own = (wait.last_enqueued, wait.last_completed) if group.default else (WORLD_CALLS, WORLD_CALLS)
    dumps(incident, t + 0.004, rank, "this local rank", *own)


def dumps(incident: Incident, t: float, rank: int, source: str, enqueued: int, completed: int) -> None:
    """The heartbeat monitor's dump; always in the tag of the default group's monitor."""
    tagged = tag(incident, rank, incident.default)
    reason = (
        f"{tagged} Received a dump signal due to a collective timeout from {source} and we will try our "
        "best to dump "
        f"the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
    )
    incident.c10(t, rank, reason + _MOST_LIKELY, where="ProcessGroupNCCL.cpp:1720")
    incident.c10(
        t + 0.001,
        rank,
        f"{tagged} ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1",
        where="ProcessGroupNCCL.cpp:1533",
    )


def observes(incident: Incident, t: float, rank: int, reporter: int, enqueued: int, completed: int) -> None:
    """All that a rank says that did not time out itself; only torch from 2.4 on says it."""
    if incident.dress.era not in ("new", "half"):
        return
    tagged = tag(incident, rank, incident.default)
    incident.c10(
        t,
        rank,
        f"{tagged} Observed flight recorder dump signal from another rank via TCPStore.",
        where="ProcessGroupNCCL.cpp:1682",
    )
    dumps(incident, t + 0.001, rank, f" rank {reporter}", enqueued, completed)


def taken_down(incident: Incident, t: float, ranks: tuple[int, ...]) -> None:
    """The watchdogs' last words alone: they say that something failed, not what."""
    for rank in ranks:
        inside = "" if incident.dress.era == "old" else f"[Rank {rank}] "
        words = f"{inside}To avoid data inconsistency, we are taking the entire process down."
        incident.c10(t + rank * 0.01, rank, words, where="ProcessGroupNCCL.cpp:636")


def dies(incident: Incident, t: float, rank: int, why: str, group: Group | None = None) -> None:
    """The watchdog takes the process down."""
    group = group or incident.default
    inside = group.rank_in(rank)
    if incident.dress.era == "old":
        incident.c10(
            t,
            rank,
            "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
            "kernels, subsequent GPU operations might run on corrupted/incomplete data.",
            where="ProcessGroupNCCL.cpp:414",
        )
        incident.c10(
            t,
            rank,
            "To avoid data inconsistency, we are taking the entire process down.",
            where="ProcessGroupNCCL.cpp:420",
        )
        incident.say(
            t, rank, f"terminate called after throwing an instance of 'std::runtime_error'\n  what():  {why}"
        )
        return
    incident.c10(
        t,
        rank,
        f"[Rank {inside}] Some NCCL operations have failed or timed out. Due to the asynchronous "
        "nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        where="ProcessGroupNCCL.cpp:630",
    )
    incident.c10(
        t,
        rank,
        f"[Rank {inside}] To avoid data inconsistency, we are taking the entire process down.",
        where="ProcessGroupNCCL.cpp:636",
    )
    incident.c10(
        t + 0.001,
        rank,
        f"{tag(incident, rank, group)} Process group watchdog thread terminated with exception: {why}\n"
        "Exception raised from checkTimeout at "
        "/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:632 (most "
        "recent call first):\nframe #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 "
        "(0x7f48af3a4353 in "
        "/opt/env/lib/libc10.so)\nframe #1: c10d::ProcessGroupNCCL::Watchdog::runLoop() + 0x8c "
        "(0x7f48af5d9609 in "
        "/opt/env/lib/libtorch_cuda.so)\n",
        where="ProcessGroupNCCL.cpp:1895",
    )
    incident.say(t + 0.002, rank, "terminate called after throwing an instance of 'c10::DistBackendError'")


def heartbeat(incident: Incident, t: float, rank: int, pending: int = 1) -> None:
    """The watchdog of a rank itself makes no progress."""
    tagged = tag(incident, rank, incident.default)
    incident.c10(
        t,
        rank,
        f"{tagged} First PG on this rank that detected no heartbeat of its watchdog.",
        where="ProcessGroupNCCL.cpp:1375",
    )
    incident.c10(
        t + 0.001,
        rank,
        f"{tagged} Heartbeat monitor timed out! Process will be terminated after dumping debug "
        f"info. workMetaList_.size()={pending}",
        where="ProcessGroupNCCL.cpp:1413",
    )
    incident.c10(
        t + 60,
        rank,
        f"{tagged} {tagged} ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress "
        "in monitoring "
        "enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang "
        "blocking the "
        "watchdog, and could be triggered by another thread holding the GIL inside a CUDA api (for example, "
        "CudaEventDestroy), or other deadlock-prone behaviors.",
        level="F",
        where="ProcessGroupNCCL.cpp:1224",
    )


def connection_lost(incident: Incident, t: float, rank: int, host: str, wait: Wait) -> None:
    """NCCL's own word that a peer is gone: it names a host, never a rank."""
    incident.nccl(
        t, rank, f"socket.cc:881 Call to recv from {host}<41234> failed : Connection reset by peer", "WARN"
    )
    why = (
        f"Collective {work(incident, wait)} raised the following async exception: NCCL error: remote "
        "process exited "
        "or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to "
        "a network "
        "error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by "
        "remote "
        f"peer {host}<41234>"
    )
    incident.c10(t + 0.1, rank, f"[Rank {rank}] {why}", where="ProcessGroupNCCL.cpp:542")
    dies(incident, t + 0.2, rank, f"[Rank {rank}] {why}")


def all_time_out(
    incident: Incident, t: float, ranks: tuple[int, ...], wait: Wait, group: Group | None = None
) -> None:
    """Several ranks time out within a second, in an order that means nothing."""
    order = list(ranks)
    incident.random.shuffle(order)
    for n, rank in enumerate(order):
        times_out(incident, t + min(n * 0.03, 5.0), rank, wait, group)
