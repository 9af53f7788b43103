"""The same collectives as fr_hang with nothing broken: the run that must be called healthy.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/control.py
"""

import argparse

import torch
import torch.distributed as dist

from harness.worker import Session


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--numel", type=int, default=1 << 20)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--collective-timeout-s", type=float, default=30.0)
    args = parser.parse_args(argv)

    with Session.join(args.backend, args.collective_timeout_s) as session:
        x = torch.randn(args.numel, device=session.device)
        out = torch.empty(session.world_size * args.numel, device=session.device)
        for step in session.steps(args.steps):
            dist.all_reduce(x)
            dist.all_gather_into_tensor(out, x)
            if step == 3:
                dist.all_reduce(x)
            if x.is_cuda:
                torch.cuda.synchronize()
        dist.barrier()


if __name__ == "__main__":
    main()
