"""The same checkpoint under another split over data and tensor ranks: the same loss."""

import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from harness.worker.probes.options import Options, Unable
from harness.worker.probes.ranks import Figures, device_of, run_ranks

DEFAULTS: Options = {"nproc": 4, "broken": ""}

WIDTH, HIDDEN, LAYERS, BATCH = 32, 64, 2, 8
STEPS, COMPARED = 3, 4


class Block(nn.Module):
    """Two linear layers with a nonlinearity and a residual: what tensor parallelism splits."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features [batch, WIDTH] to the same shape."""
        out: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        return out


def measure(options: Options) -> Figures:
    """Figures of `reshard`. `broken`: weights, a rank's part is not what was saved.

    Raises:
        Unable: a number of ranks that no two splits fit.
    """
    nproc = int(options["nproc"])
    if nproc < 4 or nproc % 2:
        raise Unable(f"--nproc {nproc}: needs four ranks or more, an even number")
    folder = Path(tempfile.mkdtemp(prefix="reshard-", dir=os.environ.get("DRILL_PROBE_OUT")))
    try:
        results = run_ranks(_rank, nproc, str(folder), options["broken"] == "weights")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if results is None:
        return {}
    return results[0]


def _rank(folder: str, spoil: bool) -> Figures:
    world = dist.get_world_size()
    device = device_of(dist.get_rank())
    model = _split(device, world, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        _loss(model, step, device).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    before = _losses(model, device)
    save({"model": get_model_state_dict(model)}, checkpoint_id=folder)
    other = _split(device, world // 2, 2)
    state = {"model": get_model_state_dict(other)}
    load(state, checkpoint_id=folder)
    set_model_state_dict(other, state["model"])
    if spoil and dist.get_rank() == 1:
        with torch.no_grad():
            part = next(other.parameters())
            assert isinstance(part, DTensor)
            part.to_local().mul_(1.5)
    after = _losses(other, device)
    differences = [abs(a - b) / max(abs(a), 1e-12) for a, b in zip(before, after, strict=True)]
    return {
        "largest_difference": max(differences),
        "compared_steps": len(differences),
        "from_layout": f"data {world} x tensor 1",
        "to_layout": f"data {world // 2} x tensor 2",
        "says": [f"loss {before[0]:.6g} before, {after[0]:.6g} under the other split"],
    }


def _split(device: torch.device, data: int, tensor: int) -> nn.Module:
    """The model, its weights over `tensor` ranks and then over `data` ranks; equal on all before training."""
    torch.manual_seed(7)
    model = nn.Sequential(*(Block() for _ in range(LAYERS))).to(device)
    mesh = init_device_mesh(device.type, (data, tensor), mesh_dim_names=("data", "tensor"))
    if tensor > 1:
        for block in model:
            parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    for block in model:
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    return model


def _loss(model: nn.Module, number: int, device: torch.device) -> torch.Tensor:
    """On the same batch for every rank and split."""
    seed = torch.Generator().manual_seed(1000 + number)
    x = torch.randn(BATCH, WIDTH, generator=seed).to(device)
    y = torch.randn(BATCH, WIDTH, generator=seed).to(device)
    return nn.functional.mse_loss(model(x), y)


def _losses(model: nn.Module, device: torch.device) -> list[float]:
    with torch.no_grad():
        return [float(_loss(model, 100 + i, device)) for i in range(COMPARED)]
