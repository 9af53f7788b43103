"""Bare collectives: every step all-reduces and all-gathers, as a training step boiled down."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from harness.worker.session import Session
from harness.worker.workloads.options import Options

NUMEL = 1 << 14
"""Elements of the all-reduced tensor."""


class Rows(Dataset[torch.Tensor]):
    """Row i is NUMEL times i."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((NUMEL,), float(index))


def train(session: Session, options: Options) -> None:
    """Load a batch, exchange, `options.steps` times."""
    rows = session.dataset(Rows(options.steps), 1)
    loader = DataLoader(rows, batch_size=1, num_workers=options.loader_workers)
    batches = iter(loader)
    for step in session.steps(options.steps):
        x = session.batch(step, next(batches))[0].to(session.device)
        for _ in range(session.micro_batches(step, options.micro_batches)):
            exchange(x)
        if x.is_cuda:
            torch.cuda.synchronize()
    dist.barrier()


def exchange(x: torch.Tensor) -> None:
    """The collectives of one micro-batch."""
    out = torch.empty(dist.get_world_size() * x.numel(), device=x.device)
    dist.all_reduce(x)
    dist.all_gather_into_tensor(out, x)
