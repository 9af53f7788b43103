"""A pipeline schedule: two replicas of a chain of stages that send activations on and gradients back.

Rank = 2 x stage + replica. Every step runs all micro-batches forward, then backward (GPipe), all-reduces
the gradients of a stage between the replicas, and a norm over all ranks.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from harness.worker.session import Session
from harness.worker.workloads.options import Options

REPLICAS = 2
NUMEL = 1 << 12
"""Elements of one activation."""


@dataclass
class Stage:
    """One rank's place in the chain. `before` and `after` are global ranks, None at the ends."""

    session: Session
    chain: dist.ProcessGroup
    replicas: dist.ProcessGroup
    before: int | None
    after: int | None

    @classmethod
    def of(cls, session: Session) -> "Stage":
        """Make the groups of all stages and replicas; every rank makes all of them, in one order."""
        rank, world = session.rank, session.world_size
        chains = [tuple(range(replica, world, REPLICAS)) for replica in range(REPLICAS)]
        stages = [tuple(range(first, first + REPLICAS)) for first in range(0, world, REPLICAS)]
        chain = _mine(rank, chains, "pipeline")
        replicas = _mine(rank, stages, "replicas")
        before = rank - REPLICAS if rank >= REPLICAS else None
        after = rank + REPLICAS if rank + REPLICAS < world else None
        return cls(session, chain, replicas, before, after)

    def forward(self, step: int) -> None:
        """Receive an activation, compute, send it on."""
        x = torch.ones(NUMEL, device=self.session.device)
        if self.before is not None:
            dist.recv(x, self.before, group=self.chain)
        if self.after is not None:
            self._send(step, self.after, 2 * x)

    def backward(self, step: int) -> None:
        """Receive a gradient, compute, send it back."""
        gradient = torch.ones(NUMEL, device=self.session.device)
        if self.after is not None:
            dist.recv(gradient, self.after, group=self.chain)
        if self.before is not None:
            self._send(step, self.before, gradient / 2)

    def _send(self, step: int, peer: int, x: torch.Tensor) -> None:
        message = self.session.message(step, peer, x)
        if message is not None:
            dist.send(message[1], message[0], group=self._group_with(message[0]))

    def _group_with(self, peer: int) -> dist.ProcessGroup | None:
        return self.chain if peer in dist.get_process_group_ranks(self.chain) else None


def train(session: Session, options: Options) -> None:
    """Run the schedule `options.steps` times."""
    if session.world_size % REPLICAS or session.world_size < 2 * REPLICAS:
        raise ValueError(f"{session.world_size} ranks: the pipeline needs an even number, four at least")
    stage = Stage.of(session)
    gradients = torch.ones(NUMEL, device=session.device)
    norm = torch.ones(1, device=session.device)
    for step in session.steps(options.steps):
        for _ in range(options.micro_batches):
            stage.forward(step)
        for _ in range(options.micro_batches):
            stage.backward(step)
        dist.all_reduce(gradients, group=stage.replicas)
        dist.all_reduce(norm)
    dist.barrier()


def _mine(rank: int, groups: list[tuple[int, ...]], description: str) -> dist.ProcessGroup:
    """Make all groups and return the one that `rank` is in."""
    made = [dist.new_group(list(members), group_desc=description) for members in groups]
    mine = next(group for group, members in zip(made, groups, strict=True) if rank in members)
    assert isinstance(mine, dist.ProcessGroup)
    return mine
