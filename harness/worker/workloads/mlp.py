"""A steady job: DDP over a few layers whose work takes a set time, so that slopes show against its evenness.

On CPUs the work of a layer is a wait, as a host waits for its device: eight ranks on two cores would
otherwise slow one another. With ``--work matrices`` it is real work of the CPU, with ``--work device`` of
the rank's device. Every step records what a training loop can know: the wait for data, its own computing, the
exposed wait for the others, loss, norm, position in the data, and a digest of what all replicas must hold
alike.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo  # DDP imports it when it is made; a launcher that forks ranks pays for it once
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

from harness.worker.digests import digest
from harness.worker.session import Session
from harness.worker.workloads.checkpoints import Checkpoints
from harness.worker.workloads.matrices import Matrices
from harness.worker.workloads.options import SHARES, Options
from harness.worker.workloads.phases import Phases
from harness.worker.workloads.samples import MadeUp

WIDTH, LAYERS, BATCH = 32, 2, 4
DEVICE_WIDTH = 1024
"""Of the matrices of ``--work device``: one product takes some tens of microseconds."""
EVALUATION_STEPS = 5
"""An evaluation takes as long as so many steps."""

FIRST_STEP = 5.0
"""The first step is so much longer, as compilation and warm-up make it."""


class Samples(MadeUp):
    """Made-up features. Shape [WIDTH], float32."""

    def made(self, seed: torch.Generator) -> torch.Tensor:
        return torch.randn(WIDTH, generator=seed)


@dataclass
class Work:
    """What a layer costs in a step: `seconds` forward or backward, as the session's fault lets it."""

    session: Session
    options: Options
    step: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.session.rank)
        self._matrix = torch.randn(WIDTH, WIDTH)
        on_device = self.options.work == "device"
        self._products = Matrices(self.session.device, DEVICE_WIDTH) if on_device else None

    def do(self, phase: str) -> None:
        """Spend one layer's time of `phase`."""
        seconds = self.options.compute_ms / 1000 * SHARES[phase] / LAYERS
        if self.step == 0:
            seconds *= FIRST_STEP
        if self.options.jitter:
            seconds *= max(0.0, self._random.gauss(1.0, self.options.jitter))
        seconds = self.session.compute_s(self.step, phase, seconds)
        if self._products is not None:
            self._products.work(seconds)
        elif self.options.work == "timed":
            time.sleep(seconds)
        else:
            self._multiply(seconds)

    def _multiply(self, seconds: float) -> None:
        """Use the CPU for `seconds` of this thread's own time, however long that takes on the wall."""
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            torch.mm(self._matrix, self._matrix)


class _Timed(torch.autograd.Function):
    """The identity, with a layer's work in both directions."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, work: Work) -> torch.Tensor:
        ctx.work = work
        work.do("forward")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.work.do("backward")
        return gradient, None


class Mlp(nn.Module):
    """LAYERS linear layers with timed work between them; predicts a sample's mean."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1)
        self._work = work

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features [batch, WIDTH] to predictions [batch]."""
        for layer in self.layers:
            x = torch.relu(_Timed.apply(layer(x), self._work))  # type: ignore[no-untyped-call]
        out: torch.Tensor = self.head(x)
        return out.squeeze(-1)


def train(session: Session, options: Options) -> None:
    """Train; save and evaluate as told; a restarted job goes on from the last checkpoint."""
    torch.manual_seed(7)
    work = Work(session, options)
    model = DistributedDataParallel(Mlp(work).to(session.device))
    phases = Phases(session.device)
    model.register_comm_hook(None, phases.reduce)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    checkpoints = Checkpoints.of(session, options)
    first, position = checkpoints.resume(model)
    if first and session.rank == 0:
        print(f"resumed from checkpoint step {first - 1}", flush=True)
    position = session.position(position) if first else 0
    batches = _batches(session, options, position)
    for step in session.steps(options.steps, first):
        work.step = step - first
        with session.timed("data_wait_s"):
            x = session.batch(step, next(batches)).to(session.device)
        position += BATCH
        optimizer.zero_grad()
        phases.begin()
        loss = nn.functional.mse_loss(model(x), x.mean(dim=1))
        loss.backward()  # type: ignore[no-untyped-call]
        phases.end()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        session.gradients(step, gradients)
        norm = nn.utils.get_total_norm(gradients)
        optimizer.step()
        session.measure(
            loss=float(loss.detach()),
            grad_norm=float(norm),
            consumed_samples=position,
            digest=digest([*gradients, *model.parameters()]),
            compute_s=phases.compute_s,
            comm_wait_s=phases.wait_s,
        )
        if options.eval_every and (step + 1) % options.eval_every == 0:
            _evaluate(work)
        checkpoints.after(step, model, position)
    dist.barrier()


def _batches(session: Session, options: Options, position: int) -> Iterator[torch.Tensor]:
    """This rank's batches from a position in its shard on, [BATCH, WIDTH] each."""
    count = BATCH * options.steps
    samples = session.dataset(Samples(session.rank, count), BATCH)
    rest = Subset(samples, range(position, count))
    return iter(DataLoader(rest, batch_size=BATCH, num_workers=options.loader_workers))


def _evaluate(work: Work) -> None:
    """All ranks pause training for a while, and meet again."""
    for _ in range(EVALUATION_STEPS * LAYERS):
        work.do("forward")
    dist.barrier()
