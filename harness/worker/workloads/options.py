"""What a drill's script is told on its command line."""

import argparse
from collections.abc import Collection
from dataclasses import dataclass

from harness.model.ranks import parse_ranks

SHARES = {"forward": 1 / 3, "backward": 2 / 3}
"""How the computing of a step of `mlp` divides."""

WORKLOADS = ("collectives", "ddp", "fsdp", "mlp", "pipeline")


@dataclass(frozen=True)
class Options:
    """What a script was told.

    `at`: the step in which the fault fires; `save_every`, `eval_every`: steps between checkpoints and between
    evaluations, 0 for none; `compute_ms`: forward and backward of one step of `mlp`, the same every step but
    for `jitter` (standard deviation, as a share); `work`: whether `mlp` waits for that long, as a host waits
    for its device, or keeps the CPU or its device busy with matrices; `factor`: how much slower a slowed part
    becomes.
    """

    culprit: tuple[int, ...]
    mode: str
    at: int
    steps: int
    workload: str
    micro_batches: int
    loader_workers: int
    save_every: int
    checkpoints: str | None
    backend: str
    collective_timeout_s: float
    eval_every: int
    compute_ms: float
    jitter: float
    work: str
    factor: float


def parse_options(description: str | None, modes: Collection[str], argv: list[str] | None = None) -> Options:
    """Read a drill script's arguments; the first of `modes` is the default."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--culprit", type=parse_ranks, default=())
    parser.add_argument("--mode", choices=list(modes), default=next(iter(modes)))
    parser.add_argument("--at", type=int, default=3, help="step in which the fault fires")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--workload", choices=WORKLOADS, default="collectives")
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--loader-workers", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--checkpoints", help="folder; default: beside the bundle's logs, or none")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--collective-timeout-s", type=float, default=60.0)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--compute-ms", type=float, default=8.0)
    parser.add_argument("--jitter", type=float, default=0.0)
    parser.add_argument("--work", choices=("timed", "matrices", "device"), default="timed")
    parser.add_argument("--factor", type=float, default=3.0)
    return Options(**vars(parser.parse_args(argv)))
