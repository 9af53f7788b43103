"""Eight ranks all-reduce and all-gather; at one step a culprit issues something else.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/fr_hang.py --culprit 5 --mode size
"""

import argparse

import torch
import torch.distributed as dist

from harness.model.ranks import parse_ranks
from harness.worker import Session
from harness.worker.faults import Fault

MODES = ("size", "size_more", "skip", "dtype", "type", "extra")


def hang_step(fault: Fault, mode: str, step: int, x: torch.Tensor) -> None:
    """One more all-reduce, which the culprit replaces or leaves out."""
    if not fault.due(step) or mode == "extra":
        dist.all_reduce(x)
        return
    fault.fire()
    if mode == "size":
        dist.all_reduce(torch.ones(1, device=x.device))
    elif mode == "size_more":
        dist.all_reduce(torch.ones(2 * x.numel(), device=x.device))
    elif mode == "dtype":
        dist.all_reduce(x.half())
    elif mode == "type":
        dist.broadcast(x, src=0)


def _check_batch(fault: Fault, mode: str, step: int, x: torch.Tensor) -> None:
    """A validation that only the culprit's data triggers: it all-reduces a flag that nobody else does."""
    if mode == "extra" and fault.due(step):
        fault.fire()
        dist.all_reduce(torch.ones(1, device=x.device))


def exchange(fault: Fault, mode: str, step: int, x: torch.Tensor, out: torch.Tensor) -> None:
    """The collectives of every step."""
    dist.all_reduce(x)
    _check_batch(fault, mode, step, x)
    dist.all_gather_into_tensor(out, x)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--culprit", type=parse_ranks, default=(5,))
    parser.add_argument("--mode", choices=MODES, default="size")
    parser.add_argument("--hang-at", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--numel", type=int, default=1 << 20)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--collective-timeout-s", type=float, default=30.0)
    args = parser.parse_args(argv)

    with Session.join(args.backend, args.collective_timeout_s) as session:
        fault = session.arm(args.mode, args.culprit, args.hang_at if args.hang_at < args.steps else -1)
        x = torch.randn(args.numel, device=session.device)
        out = torch.empty(session.world_size * args.numel, device=session.device)
        for step in session.steps(args.steps):
            exchange(fault, args.mode, step, x, out)
            if step == args.hang_at:
                hang_step(fault, args.mode, step, x)
            if x.is_cuda:
                torch.cuda.synchronize()
        # Once more, so that a break in the last step meets something.
        exchange(fault, args.mode, args.steps, x, out)


if __name__ == "__main__":
    main()
