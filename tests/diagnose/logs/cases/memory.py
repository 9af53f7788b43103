"""Out of memory: of devices, hosts, shared memory; and by whose word."""

from tests.diagnose.logs.cases import launchers
from tests.diagnose.logs.cases.deaths import FAILS, ends, fall_out, raising
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect

WORKER = "RuntimeError: DataLoader worker (pid 51234) is killed by signal: Killed. "


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


def _two_agents(incident: Incident) -> None:
    """Only local ranks, of two agents."""
    for rank in incident.ranks:
        incident.nccl(3, rank, "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0")
    incident.steps(20, 290)
    incident.raises(FAILS, 11, device_oom(incident, 11))


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


MEMORY: tuple[Case, ...] = (
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
)
