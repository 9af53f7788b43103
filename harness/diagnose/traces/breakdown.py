"""A step cut into parts that are disjoint and add up exactly to the step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.traces.collectives import Communication
from harness.diagnose.traces.intervals import Cover, Ints, both, cover

COMPUTE = "compute"
BUBBLE = "bubble"
EXPOSED = "comm_exposed"
RECOMPUTE = "recompute"
DATA = "data_wait"
KERNELS = "kernel_eff"
HOST = "cpu_launch"
STRAGGLER = "straggler"

BUCKETS = (COMPUTE, BUBBLE, EXPOSED, RECOMPUTE, DATA, KERNELS, HOST, STRAGGLER)
"""In the order in which they are shown. Each moment of a step belongs to exactly one.

- compute: matrix work runs (products, attention, convolutions)
- recompute: what runs was launched to compute activations once more
- kernel_eff: only other kernels, copies or memset run: time in which the device does no matrix work
- comm_exposed: a collective transfers, and nothing computes
- bubble: a send or a receive runs, and nothing else does: a stage waits for its neighbour
- straggler: a collective waits for its latest rank: what it takes beyond the shortest of its like
- data_wait: nothing runs, and the training thread is in the DataLoader
- cpu_launch: nothing runs: the rest

Without a device the training thread is what computes, and time in the DataLoader is data_wait throughout.
"""

WAITING = (EXPOSED, BUBBLE, STRAGGLER)
"""Time in which a rank depends on others; the rest of a step is its own."""


@dataclass(frozen=True)
class Computing:
    """When one rank did what by itself. Covers may overlap: the order of precedence decides."""

    on_device: bool
    compute: Cover
    recompute: Cover
    other: Cover
    loader: Cover


def parts(computing: Computing, communication: Communication, begin: Ints, end: Ints) -> dict[str, Ints]:
    """Nanoseconds of each bucket in each step [begin, end)."""
    busy = [(COMPUTE, computing.compute), (RECOMPUTE, computing.recompute), (KERNELS, computing.other)]
    waiting = [
        (EXPOSED, communication.transfer),
        (BUBBLE, communication.p2p),
        (STRAGGLER, communication.waiting),
    ]
    loader = [(DATA, computing.loader)]
    if computing.on_device:
        return _precedence((*busy, *waiting, *loader), begin, end)
    # On a CPU recomputing is told apart by the operation, so nothing of it is in the two other covers.
    return _precedence((*loader, *busy, *waiting), begin, end)


def _precedence(layers: Sequence[tuple[str, Cover]], begin: Ints, end: Ints) -> dict[str, Ints]:
    """What each layer adds to the union of those before it: by construction never negative, and exact."""
    union = cover(np.zeros(0, np.int64), np.zeros(0, np.int64))
    covered = np.zeros(len(begin), np.int64)
    found: dict[str, Ints] = {}
    for name, layer in layers:
        union = both(union, layer)
        now = union.length(begin, end)
        found[name] = now - covered
        covered = now
    found[HOST] = (end - begin) - covered
    return {name: found[name] for name in BUCKETS}


@dataclass(frozen=True)
class Work:
    """What one rank did in a step, on average over the steps that count.

    `by_name`: kernel or operation -> (times it ran, seconds, whether it is matrix work).
    """

    by_name: Mapping[str, tuple[float, float, bool]]
    collectives: float
    nelems: float
    allocations: float
    allocation_s: float
    logging_s: float


@dataclass(frozen=True)
class Breakdown:
    """One rank's steps in parts. `parts`: bucket -> nanoseconds a step, aligned with `steps` and `step_ns`.

    `steps` are the numbers that the trace gives them, -1 for a trace without step annotations.
    """

    rank: int
    file: str
    on_device: bool
    steps: tuple[int, ...]
    step_ns: Ints
    parts: Mapping[str, Ints]
    work: Work

    @property
    def own_ns(self) -> Ints:
        """What of each step does not depend on other ranks."""
        return self.step_ns - sum(self.parts[name] for name in WAITING)
