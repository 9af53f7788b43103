"""Who the ranks of a job are, from outside, and what is missing or odd."""

import pytest

from harness.diagnose.stacks.samples import Frame, ProcessStacks, RankStacks, Thread
from harness.incident.census import differing_variables, rank_map, ranks_not_found
from harness.observe.backends import Backends
from harness.observe.gpus import GpuState
from harness.observe.jobs import Job, RankProcess

TORCH = "/v/site-packages/torch/distributed/distributed_c10d.py"


def job(ranks: tuple[int, ...], first: int = 0, **environ: str) -> Job:
    """Ranks of one agent, whose local rank 0 is rank `first`."""
    return Job({r: RankProcess(r, r - first, 8, 0, 100 + r, 9, 50.0 + r, environ) for r in ranks})


def test_ranks_that_the_agent_should_have_and_has_not() -> None:
    """Two of the second node's four have no process."""
    (lacking,) = ranks_not_found(job((4, 6), first=4, LOCAL_WORLD_SIZE="4"))

    assert lacking.what == "rank 5,7"


def test_variables_that_differ_between_ranks() -> None:
    """Files and devices of one rank's own are no difference; an NCCL setting is, unset ones too."""
    ranks = {
        0: {"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0", "API_TOKEN": "a"},
        1: {"NCCL_ALGO": "Tree", "CUDA_VISIBLE_DEVICES": "1", "API_TOKEN": "b"},
        2: {"CUDA_VISIBLE_DEVICES": "2"},
    }
    processes = {r: RankProcess(r, r, 3, 0, 100 + r, 9, 1.0, environ) for r, environ in ranks.items()}

    assert differing_variables(Job(processes)) == [(1, "NCCL_ALGO=Tree"), (2, "NCCL_ALGO=(not set)")]


def sampled(frame: str) -> RankStacks:
    """A rank whose main thread is in one of torch's functions, called by its script."""
    frames = (
        Frame(name=frame, filename=TORCH, line=1),
        Frame(name="<module>", filename="/job/train.py", line=3),
    )
    thread = Thread(thread_name="MainThread", frames=frames)
    return RankStacks(0, "rank.json", (ProcessStacks(pid=1, threads=(thread,)),))


@pytest.mark.parametrize("named", [True, False])
def test_who_has_joined(named: bool) -> None:
    """By the start of torch's own threads; by stacks where torch does not name them yet."""
    none = Backends()
    there = {0: Backends(frozenset(("gloo",)), 77.0), 1: none} if named else {0: none, 1: none}
    stacks = {0: sampled("all_reduce"), 1: sampled("init_process_group")}
    gpus = GpuState(({"name": "H100", "uuid": "GPU-x"},), {101: "GPU-x"})

    ranks = rank_map(job((0, 1)), there, stacks, gpus, None).ranks

    assert [r.joined for r in ranks] == [77.0 if named else 50.0, None]
    assert [(r.device, r.device_uuid) for r in ranks] == [(None, None), ("H100", "GPU-x")]
