"""Save, kill every process, resume: the loss goes on to the last bit, and the data in the same order.

Three starts of one job. The first runs through and is the reference; the second saves and is killed; the
third resumes. What the third does after the checkpoint must be what the first did there.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from harness.worker.probes.options import Options, Unable
from harness.worker.probes.ranks import Figures, RankFailed, Team, device_of, need_ranks
from harness.worker.workloads.samples import MadeUp
from harness.worker.workloads.transformer import LENGTH, VOCABULARY, Transformer

DEFAULTS: Options = {"nproc": 4, "steps": 8, "save_at": 3, "broken": ""}

BATCH = 2
SAVED_LIMIT_S = 120.0
BROKEN = ("", "byte", "order", "count", "rng")


class Tokens(MadeUp):
    """Made-up sentences. Shape [LENGTH], int64."""

    def made(self, seed: torch.Generator) -> torch.Tensor:
        return torch.randint(VOCABULARY, (LENGTH,), generator=seed)


def measure(options: Options) -> Figures:
    """Figures of `checkpoint`.

    `broken`: byte, one byte of the checkpoint turns on the disk; order, a rank goes on one sample later;
    count, a rank has fewer samples; rng, the state of the random numbers is not restored.

    Raises:
        Unable: a checkpoint behind the last step, or an unknown way to break it.
    """
    steps, at, broken = int(options["steps"]), int(options["save_at"]), str(options["broken"])
    nproc = int(options["nproc"])
    need_ranks(nproc, 2)
    if not 0 <= at < steps - 1:
        raise Unable(f"--save-at {at}: allowed is a step from 0 to {steps - 2}")
    if broken not in BROKEN:
        raise Unable(f"--broken {broken}: allowed are {', '.join(filter(None, BROKEN))}")
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=os.environ.get("DRILL_PROBE_OUT")))
    try:
        return _drill(nproc, steps, at, broken, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drill(nproc: int, steps: int, at: int, broken: str, folder: Path) -> Figures:
    reference = Team(_rank, nproc, steps, at, str(folder / "reference"), False, broken)
    reference.start()
    whole = reference.results()
    killed = Team(_rank, nproc, steps, at, str(folder / "saved"), False, broken)
    killed.start()
    _wait_for(folder / "saved" / "whole", killed)
    killed.kill()
    if broken == "byte":
        _turn_a_byte(folder / "saved")
    resumed = Team(_rank, nproc, steps, at, str(folder / "saved"), True, broken)
    resumed.start()
    try:
        rest = resumed.results()
    except RankFailed as error:
        return {
            **_figures(whole, [], at, []),
            "says": [f"the checkpoint does not load: {error}"],
        }
    says = _differences(whole, rest, at)
    for rank, result in enumerate(rest):
        if not result["state_equal"]:
            says.insert(0, f"rank {rank}: weights or moments are not those that were saved")
    return {
        **_figures(whole, rest, at, says),
        "says": says or [f"{steps - at - 1} steps equal to the last bit"],
    }


def _figures(
    whole: Sequence[Figures], rest: Sequence[Figures], at: int, says: Sequence[str]
) -> dict[str, object]:
    counts = {len(samples) for r in whole for samples in _lists(r, "samples")}
    totals = {sum(map(len, _lists(r, "samples"))) for r in whole}
    return {
        "losses_equal": bool(rest) and not any("loss" in said for said in says),
        "state_equal": bool(rest) and all(r["state_equal"] is True for r in rest),
        "order_equal": bool(rest) and not any("samples" in said for said in says),
        "counts_equal": len(counts) == 1 and len(totals) == 1,
        "resumed_from": at,
        "compared_steps": min((len(_lists(r, "losses")) for r in rest), default=0),
        "save_s": max(float(str(r["save_s"])) for r in whole),
        "load_s": max((float(str(r["load_s"])) for r in rest), default=None),
    }


def _differences(whole: Sequence[Figures], rest: Sequence[Figures], at: int) -> list[str]:
    """The first difference of each rank, in words."""
    says = []
    for rank, (one, other) in enumerate(zip(whole, rest, strict=True)):
        pairs = (("loss", "losses"), ("samples", "samples"))
        for word, key in pairs:
            before, after = _lists(one, key)[at + 1 :], _lists(other, key)
            if before == after:
                continue
            step = next(
                (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
                min(len(before), len(after)),
            )
            was = before[step] if step < len(before) else "nothing"
            is_ = after[step] if step < len(after) else "nothing"
            says.append(f"rank {rank}, step {at + 1 + step}: {word} {is_} after the resume, {was} without it")
    return says


def _lists(figures: Figures, key: str) -> list[list[int]]:
    found = figures[key]
    assert isinstance(found, list)
    return found


def _wait_for(marker: Path, team: Team) -> None:
    deadline = time.monotonic() + SAVED_LIMIT_S
    while not marker.exists():
        if not team.alive() or time.monotonic() > deadline:
            # Its own reason, rather than ours.
            team.results()
            raise RankFailed(f"no checkpoint within {SAVED_LIMIT_S:g} s")
        time.sleep(0.01)


def _turn_a_byte(folder: Path) -> None:
    """What a disk or a network does silently: one bit in the middle of the largest file."""
    largest = max(folder.rglob("*.distcp"), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 0x40
    largest.write_bytes(data)


def _rank(steps: int, at: int, name: str, resume: bool, broken: str) -> Figures:
    """One start of the job in one rank: every step's loss as it is stored, and which samples it read."""
    folder = Path(name)
    rank = dist.get_rank()
    device = device_of(rank)
    torch.manual_seed(7)
    model = Transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    tokens = Tokens(rank, BATCH * steps - (1 if broken == "count" and rank == 1 else 0))
    first, load_s, save_s, state_equal = 0, 0.0, 0.0, True
    if resume:
        begun = time.perf_counter()
        first = _load(model, optimizer, folder, random_too=broken != "rng") + 1
        load_s = time.perf_counter() - begun
        state_equal = _state_digest(model, optimizer) == (folder / f"state_{rank}").read_text()
    position = first * BATCH + (1 if resume and broken == "order" and rank == 1 else 0)
    losses, samples = [], []
    for step in range(first, steps):
        indices = [i for i in range(position, position + BATCH) if i < len(tokens)]
        position += BATCH
        batch = torch.stack([tokens[i] for i in indices]).to(device)
        # What dropout and augmentation do: a step that depends on the random numbers' state.
        noise = torch.randn(batch.shape[0], 1, VOCABULARY, device="cpu").to(device)
        optimizer.zero_grad()
        logits = model(batch) + 0.01 * noise
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        _average(model)
        optimizer.step()
        losses.append(float(loss.detach()).hex())
        samples.append([*indices, _digest(batch)])
        if step == at and not resume:
            begun = time.perf_counter()
            _save(model, optimizer, folder, step)
            save_s = time.perf_counter() - begun
    return {
        "losses": losses,
        "samples": samples,
        "save_s": save_s,
        "load_s": load_s,
        "state_equal": state_equal,
    }


def _average(model: nn.Module) -> None:
    """Gradients over all ranks, one by one. DDP sorts its buckets anew after the first step of a process,
    and sums in another order from then on: the last bit of a loss would tell of that, not of the checkpoint.
    """
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def _digest(batch: torch.Tensor) -> str:
    return hashlib.sha256(batch.cpu().numpy().tobytes()).hexdigest()[:12]


def _state_digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A hash of all weights and moments: a loss may not show a bit of a weight that is hardly used."""
    found = hashlib.sha256()
    weights, moments = get_state_dict(model, optimizer)
    for tensor in (*weights.values(), *_tensors(moments)):
        if isinstance(tensor, torch.Tensor):
            found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _tensors(nested: object) -> list[torch.Tensor]:
    """All tensors of a nested mapping, in the order of its keys."""
    if isinstance(nested, torch.Tensor):
        return [nested]
    if not isinstance(nested, dict):
        return []
    return [tensor for key in sorted(nested, key=str) for tensor in _tensors(nested[key])]


def _own(rank: int) -> str:
    return f"random numbers of rank {rank}"


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    weights, state = get_state_dict(model, optimizer)
    return {
        "model": weights,
        "optimizer": state,
        "step": torch.tensor(0),
        _own(dist.get_rank()): torch.get_rng_state(),
    }


def _save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, step: int) -> None:
    state = _state(model, optimizer)
    state["step"] = torch.tensor(step)
    save(state, checkpoint_id=folder)
    (folder / f"state_{dist.get_rank()}").write_text(_state_digest(model, optimizer))
    dist.barrier()
    (folder / "whole").touch()


def _load(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, *, random_too: bool) -> int:
    """Load in place; returns the step that was saved."""
    state = _state(model, optimizer)
    load(state, checkpoint_id=folder)
    weights, moments = state["model"], state["optimizer"]
    assert isinstance(weights, dict) and isinstance(moments, dict)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    random = state[_own(dist.get_rank())]
    step = state["step"]
    assert isinstance(random, torch.Tensor) and isinstance(step, torch.Tensor)
    if random_too:
        torch.set_rng_state(random)
    return int(step)
