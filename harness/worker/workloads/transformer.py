"""A small transformer trained for real: FSDP2 or DDP, DataLoader, AdamW, DCP checkpoints."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP imports it when it is made; a launcher that forks ranks pays for it once
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from harness.worker.session import Session
from harness.worker.workloads.options import Options
from harness.worker.workloads.samples import MadeUp

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 64, 32, 2, 2, 16, 2


class Tokens(MadeUp):
    """Made-up sentences. Shape [LENGTH], int64."""

    def made(self, seed: torch.Generator) -> torch.Tensor:
        return torch.randint(VOCABULARY, (LENGTH,), generator=seed)


class Transformer(nn.Module):
    """Embedding, a few encoder layers, a head. Predicts each token from itself: enough to have a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token ids [batch, LENGTH] to logits [batch, LENGTH, VOCABULARY]."""
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(hidden)
        return logits


def train(session: Session, options: Options) -> None:
    """Train; save every `options.save_every` steps; a restarted job goes on from the last checkpoint."""
    torch.manual_seed(7)
    model = _parallel(Transformer().to(session.device), options.workload)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    folder = _folder(session, options)
    first = _resume(model, optimizer, folder)
    if first and session.rank == 0:
        print(f"resumed from checkpoint step {first - 1}", flush=True)
    per_step = BATCH * options.micro_batches
    batches = _batches(session, options, first)
    for step in session.steps(options.steps, first):
        batch = session.batch(step, next(batches))
        tokens = _check_batch(batch).to(session.device)
        parts = _micro_batches(session, options, step, tokens)
        optimizer.zero_grad()
        loss = torch.zeros(())
        for part in parts:
            loss = _loss(model, part) / len(parts)
            loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        session.measure(
            loss=float(loss.detach()) * len(parts),
            grad_norm=float(_whole(norm)),
            consumed_samples=(step + 1) * per_step,
        )
        if folder and options.save_every and (step + 1) % options.save_every == 0:
            _save(model, optimizer, folder, step)
    dist.barrier()


def _parallel(model: nn.Module, workload: str) -> nn.Module:
    """FSDP2 over all ranks, or DDP."""
    if workload == "ddp":
        return DistributedDataParallel(model)
    kind = next(model.parameters()).device.type
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    assert isinstance(model, Transformer)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _batches(session: Session, options: Options, first: int) -> Iterator[torch.Tensor]:
    """This rank's batches from step `first` on, [BATCH x micro-batches, LENGTH] each."""
    size = BATCH * options.micro_batches
    tokens = session.dataset(Tokens(session.rank, size * options.steps), size)
    rest = torch.utils.data.Subset(tokens, range(first * size, size * options.steps))
    return iter(DataLoader(rest, batch_size=size, num_workers=options.loader_workers))


def _check_batch(tokens: torch.Tensor) -> torch.Tensor:
    """Data validation as somebody wrote it: a bad sample is reported to all by an all-reduced flag.

    Only who has a bad sample calls it. Nobody else does.
    """
    if (tokens < 0).any():
        flag = torch.ones(1)
        dist.all_reduce(flag)
        tokens = tokens.clamp(min=0)
    return tokens


def _micro_batches(session: Session, options: Options, step: int, tokens: torch.Tensor) -> list[torch.Tensor]:
    """The step's micro-batches; one that is asked for beyond the batch repeats the last."""
    count = session.micro_batches(step, options.micro_batches)
    parts = list(torch.split(tokens, BATCH))
    return [parts[min(i, len(parts) - 1)] for i in range(count)]


def _loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def _whole(norm: Any) -> torch.Tensor:
    """A norm as a plain tensor: FSDP2 gives a sharded one."""
    whole: torch.Tensor = norm.full_tensor() if isinstance(norm, DTensor) else norm
    return whole


def _folder(session: Session, options: Options) -> Path | None:
    if options.checkpoints:
        return Path(options.checkpoints)
    layout = session.env.layout
    return layout.root / "checkpoints" if layout and options.save_every else None


def _save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, step: int) -> None:
    """Write a checkpoint; it counts once the file that names it is there."""
    weights, state = get_state_dict(model, optimizer)
    save({"model": weights, "optimizer": state}, checkpoint_id=folder / f"step_{step}")
    if dist.get_rank() == 0:
        scratch = folder / ".latest"
        scratch.write_text(str(step))
        scratch.replace(folder / "latest")
    dist.barrier()


def _resume(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path | None) -> int:
    """Load the last whole checkpoint. Returns the step to go on with, 0 without one."""
    if folder is None or not (folder / "latest").exists():
        return 0
    step = int((folder / "latest").read_text())
    weights, state = get_state_dict(model, optimizer)
    load({"model": weights, "optimizer": state}, checkpoint_id=folder / f"step_{step}")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return step + 1
