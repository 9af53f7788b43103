"""Deaths: who went first, by what, and whose end is only fall-out."""

from collections.abc import Callable

from tests.diagnose.logs.cases import launchers
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect
from tests.diagnose.logs.cases.watchdog import Wait, connection_lost

Tell = Callable[[Incident], None]
FAILS = 300.0
KEY = "KeyError: 'attention_mask'"


def fall_out(incident: Incident, t: float, dead: int) -> None:
    """All others lose the dead rank's connection: they name its host, and abort."""
    host = incident.host(incident.node(dead))
    for rank in incident.ranks:
        if rank != dead:
            connection_lost(incident, t + rank * 0.01, rank, host, Wait(1370))


def ends(incident: Incident, dead: int, code: int, t: float = FAILS) -> None:
    """The dead rank's own end first, then the aborts of the others."""
    fall_out(incident, t + 2, dead)
    aborts = {r: (-6, t + 3) for r in incident.ranks if r != dead}
    launchers.ended(incident, t + 5, {dead: (code, t + 0.5), **aborts})


def raising(rank: int, text: str, code: int = 1) -> Tell:
    """One rank raises; its peers lose the connection."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 290)
        incident.raises(FAILS, rank, text)
        ends(incident, rank, code)

    return tell


def killed(rank: int, code: int) -> Tell:
    """One rank is gone without a word."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 290)
        ends(incident, rank, code)

    return tell


def _killed_by_clean_up(incident: Incident) -> None:
    """Rank 2 raises; rank 6 does not heed SIGTERM and is killed thirty seconds later."""
    incident.steps(20, 290)
    incident.raises(FAILS, 2, KEY)
    launchers.ended(incident, FAILS + 31, {2: (1, FAILS + 1), 6: (-9, FAILS + 31)})


def _kernel_oom(incident: Incident) -> None:
    """Both nodes have a process of that pid; the kernel of the second one speaks."""
    incident.steps(20, 290)
    incident.kernel(
        FAILS,
        1,
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
        f"task_memcg=/job,task=python3,pid={incident.pid(14)},uid=1000",
    )
    incident.kernel(
        FAILS,
        1,
        f"Out of memory: Killed process {incident.pid(14)} (python3) total-vm:481234567kB, "
        "anon-rss:251234567kB, file-rss:123456kB, shmem-rss:0kB, UID:1000 pgtables:512345kB oom_score_adj:0",
    )
    ends(incident, 14, -9, FAILS + 1)


def _shared_memory(incident: Incident) -> None:
    incident.steps(20, 290)
    incident.say(
        FAILS - 0.1,
        1,
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared "
        "memory (shm).",
    )
    incident.raises(
        FAILS,
        1,
        "RuntimeError: DataLoader worker (pid 51234) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    )
    ends(incident, 1, 1)


def _slurm_oom(incident: Incident) -> None:
    incident.steps(20, 290)
    host = incident.host(0)
    incident.slurm(
        FAILS,
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4411.0. Some of the step tasks have been "
        "OOM Killed.",
    )
    incident.slurm(FAILS + 0.5, f"srun: error: {host}: task 3: Out Of Memory")
    fall_out(incident, FAILS + 2, 3)
    launchers.ended(incident, FAILS + 5, {r: (-6, FAILS + 3) for r in incident.ranks if r != 3})


def _noise_then(incident: Incident) -> None:
    """Rank 3 recovers from resets at the first attempt, all along; rank 6 has a real failure."""
    incident.steps(20, 290)
    for t in (60, 120, 180, 240, 298):
        incident.log(t, 3, "GET shard-000812.tar: Connection reset by peer, retrying 1/5", "W")
    incident.raises(FAILS, 6, KEY)
    ends(incident, 6, 1)


def _exhausted(incident: Incident) -> None:
    incident.steps(20, 280)
    for n in range(1, 6):
        incident.log(280 + 4 * n, 3, f"GET shard-000812.tar: Connection reset by peer, retrying {n}/5", "W")
    incident.raises(
        FAILS + 1, 3, "ConnectionError: GET shard-000812.tar failed after 5 retries: Connection reset by peer"
    )
    ends(incident, 3, 1, FAILS + 1)


def _gloo(incident: Incident) -> None:
    """gloo's victims raise, too: their exceptions are all about the connection."""
    incident.steps(20, 290)
    for rank in incident.ranks:
        if rank != 2:
            incident.raises(
                FAILS + 1 + rank * 0.01,
                rank,
                "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
                "closed by peer "
                "[10.0.0.10]:41234",
            )
    victims = {r: (1, FAILS + 3) for r in incident.ranks if r != 2}
    launchers.ended(incident, FAILS + 5, {2: (-11, FAILS + 0.5), **victims})


def _tie(incident: Incident) -> None:
    """Two hosts, a crash on each within one second: each agent prints its own block."""
    incident.steps(20, 290)
    launchers.ended(incident, FAILS + 2, {3: (-11, FAILS + 0.1), 12: (-11, FAILS + 0.4)})


def _only_victims(incident: Incident) -> None:
    """Nothing but exceptions about the connection, everywhere."""
    incident.steps(20, 290)
    for rank in incident.ranks:
        incident.raises(
            FAILS + rank * 0.01,
            rank,
            "torch.distributed.DistBackendError: NCCL error in: "
            "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
            "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A "
            "call failed "
            "possibly due to a network error or a remote process exiting prematurely.",
        )
    launchers.ended(incident, FAILS + 3, dict.fromkeys(incident.ranks, (1, FAILS + 1)))


def _peer_host(incident: Incident) -> None:
    """The second node's file is missing; the first one's ranks name its host."""
    incident.steps(20, 290)
    for rank in range(8):
        connection_lost(incident, FAILS + rank * 0.01, rank, incident.host(1), Wait(1370))
    launchers.ended(incident, FAILS + 3, dict.fromkeys(range(8), (-6, FAILS + 1)))


def _elsewhere(incident: Incident) -> None:
    """Rank 12 raises; the other node's agent is told to stop and only says SIGTERM."""
    incident.steps(20, 290)
    incident.raises(FAILS, 12, KEY)
    launchers.ended(incident, FAILS + 2, {12: (1, FAILS + 1)})
    for rank in range(8):
        incident.say(FAILS + 6, rank, f"[rank: {rank}] Received SIGTERM: 15")


def _two_agents(incident: Incident) -> None:
    """Only local ranks, of two agents."""
    for rank in incident.ranks:
        incident.nccl(3, rank, "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0")
    incident.steps(20, 290)
    incident.raises(FAILS, 11, device_oom(incident, 11))


def device_oom(incident: Incident, rank: int) -> str:
    local = incident.local(rank)
    if incident.dress.era == "new":
        return (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU {local} has a "
            "total "
            "capacity of 79.11 GiB of which 1.12 GiB is free. Including non-PyTorch memory, this process "
            "has 77.97 "
            "GiB memory in use."
        )
    return (
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB (GPU {local}; 79.15 "
        "GiB total "
        "capacity; 74.01 GiB already allocated; 1.12 GiB free; 76.88 GiB reserved in total by PyTorch)"
    )


def _device_oom(incident: Incident) -> None:
    """One line without a time, above thousands of lines of fall-out."""
    incident.steps(20, 290)
    incident.raises(FAILS, 5, device_oom(incident, 5))
    fall_out(incident, FAILS + 2, 5)
    for rank in incident.ranks:
        if rank != 5:
            for n in range(700):
                incident.say(
                    FAILS + 4, rank, f"frame #{n}: <unknown function> + 0x{64 * n:x} (0x7f48af3a4353)"
                )
    launchers.ended(incident, FAILS + 8, {5: (1, FAILS + 0.5), **dict.fromkeys((0, 1, 7), (-6, FAILS + 6))})


def _two_oom_attempts(incident: Incident) -> None:
    for attempt in range(3):
        t = attempt * 400.0
        if attempt:
            incident.restart(t)
        incident.steps(t + 20, t + 60)
        incident.raises(t + 70, 5, device_oom(incident, 5))
        ends(incident, 5, 1, t + 70)


def _last_attempt(incident: Incident) -> None:
    """The first attempt's cause is not the last one's."""
    incident.steps(20, 290)
    incident.raises(FAILS, 5, device_oom(incident, 5))
    ends(incident, 5, 1)
    incident.restart(400)
    incident.steps(420, 2900, first=28)
    incident.raises(2910, 2, KEY)
    ends(incident, 2, 1, 2910)


AIS = (
    "AISBatchLoaderError: batch returned 60 objects, expected 64: 4 objects missing from bucket ais://speech"
)
WORKER = "RuntimeError: DataLoader worker (pid 51234) is killed by signal: Killed. "
NAN = (
    "RuntimeError: Rank 3: found NaN in local grad norm in backward pass before data-parallel communication "
    "collective. Device: 3, node: gpu-a0"
)
FULL = "OSError: [Errno 28] No space left on device: '/ckpt/step-28/model_00.pt'"


def _save_fails(incident: Incident) -> None:
    incident.steps(20, 290)
    incident.log(295, 0, "Saving checkpoint at step 28 to /ckpt/step-28")
    incident.raises(FAILS, 0, FULL, function="save_checkpoint")
    ends(incident, 0, 1)


def software(name: str, rule: str, tell: Tell, rank: int, dresses: tuple[str, ...], world: int = 8) -> Case:
    return Case(name, rule, Expect("software_error", culprits=(rank,)), tell, dresses, world=world)


def gone(name: str, rule: str, rank: int, code: int, signal: str, dresses: tuple[str, ...]) -> Case:
    expect = Expect("rank_exited", culprits=(rank,), how="signal", signal=signal)
    return Case(name, rule, expect, killed(rank, code), dresses)


FIRST = "3, 6: the first to fail; whose exceptions are all communication ones are victims"

DEATHS: tuple[Case, ...] = (
    software("exception", FIRST, raising(9, KEY), 9, ("ranks", "label", "cloud"), 16),
    software("exception_8", FIRST, raising(4, KEY), 4, ("old", "pdsh", "lost_colour")),
    software("clean_up_kill", "3: -9 thirty seconds after", _killed_by_clean_up, 2, ("ranks", "label")),
    software("recovered_retries", "3: retries that recover are noise", _noise_then, 6, ("ranks", "cloud")),
    software(
        "elsewhere", "4: SIGTERM at one agent, a failure at another", _elsewhere, 12, ("ranks", "nodes"), 16
    ),
    software("last_attempt", "1: diagnose the last attempt", _last_attempt, 2, ("ranks", "cloud")),
    gone(
        "segv",
        "3, 6: aborts are symptoms, the segmentation fault is not",
        4,
        -11,
        "SIGSEGV",
        ("ranks", "label", "mid"),
    ),
    gone("kill", "-9 with no other failure before it", 6, -9, "SIGKILL", ("nodes", "srun_ranks")),
    Case(
        "gloo_victims", FIRST, Expect("rank_exited", culprits=(2,), how="signal"), _gloo, ("ranks", "cloud")
    ),
    Case(
        "device_oom",
        "5, 6: no time, and far above the fall-out",
        Expect("device_oom", culprits=(5,)),
        _device_oom,
        ("ranks", "cloud", "mid"),
    ),
    Case(
        "two_agents",
        "2: local ranks of two agents never convict",
        Expect("device_oom", hosts=("gpu-a1",)),
        _two_agents,
        ("old_nodes", "old_colour"),
        world=16,
        quiet=True,
    ),
    Case(
        "kernel_oom",
        "5: an OOM kill is mapped by pid",
        Expect("host_oom", culprits=(14,)),
        _kernel_oom,
        ("ranks", "nodes"),
        world=16,
    ),
    Case(
        "loader_killed",
        "5: a loader worker Killed is host_oom",
        Expect("host_oom", culprits=(3,)),
        raising(3, WORKER),
        ("ranks", "cloud"),
    ),
    Case(
        "shared_memory",
        "5: Bus error",
        Expect("host_oom", culprits=(1,), how="shared_memory"),
        _shared_memory,
        ("ranks", "colour"),
    ),
    Case(
        "slurm_oom",
        "5: the step daemon's word",
        Expect("host_oom", culprits=(3,)),
        _slurm_oom,
        ("label", "srun_ranks"),
    ),
    Case(
        "retries_exhausted",
        "3: retries that exhaust are failures",
        Expect("storage_failure", culprits=(3,)),
        _exhausted,
        ("ranks", "srun_ranks"),
    ),
    Case(
        "ais_batch",
        "5: storage_failure",
        Expect("storage_failure", culprits=(6,)),
        raising(6, AIS),
        ("ranks", "label"),
    ),
    Case(
        "save_fails",
        "a save failed, for want of space",
        Expect("checkpoint_failed", culprits=(0,), or_kinds=("storage_failure",)),
        _save_fails,
        ("ranks", "cloud"),
    ),
    Case(
        "nan",
        "loss_not_finite: where first seen",
        Expect("loss_not_finite", culprits=(3,)),
        raising(3, NAN),
        ("nodes", "label"),
    ),
    Case(
        "tie",
        "6: equal times in two agents' blocks are a tie",
        Expect("rank_exited", suspects=(3, 12), guilty=(3, 12)),
        _tie,
        ("ranks", "nodes"),
        world=16,
    ),
    Case(
        "only_victims",
        "3, 16: exceptions of communication alone",
        Expect("inconclusive", next_steps=True),
        _only_victims,
        ("ranks", "label"),
    ),
    Case(
        "peer_host",
        "6: a closed connection names a host, not a rank",
        Expect("inconclusive", or_kinds=("node_lost",), missing="8-15", next_steps=True, guilty=()),
        _peer_host,
        ("nodes", "ranks"),
        world=16,
        lost=tuple(range(8, 16)),
    ),
    Case(
        "restart_loop",
        "1: attempts that end alike without progress",
        Expect("restart_loop", either=(5,), in_chain="oom"),
        _two_oom_attempts,
        ("ranks", "nodes"),
    ),
)
