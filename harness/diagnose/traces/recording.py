"""What one trace recorded, as columns: what a breakdown needs of each event, and nothing else."""

from array import array
from dataclasses import dataclass, field

from harness.diagnose.traces.header import Header
from harness.diagnose.traces.spans import Numbers, Spans

MATRIX, OTHER = 0, 1
"""Classes of kernels and operations: matrix work, and everything else."""


@dataclass(frozen=True)
class CollectiveKey:
    """What makes two collectives comparable. `nelems` is None where the trace does not record sizes.

    `p2p`: it sends or receives.
    """

    name: str
    nelems: int | None
    dtype: str | None
    group: str | None
    p2p: bool


@dataclass
class Recording:
    """The columns of one rank's trace. Times in nanoseconds of the trace's own clock.

    - `steps`: label is the step's number.
    - `kernels`, `ops`: what computes on the device or on the CPU; thread is a number of `threads` (0 on the
      device), label one of `kernel_names` or `op_names`. `correlations`: one a kernel.
    - `collectives`: label is a number of `keys`.
    - `launches`: label is the correlation id.
    - `evaluations`: what autograd evaluates; label 1 for a checkpointed part. `forward`: operations that were
      recorded for a later backward. `recomputed`: annotations that say so.
    - `allocations`: runtime calls for device memory. `reserved`: end is the bytes that the allocator held,
      label the device.
    - `logging`: Python frames that write.

    `broken` says why the file could not be read to its end, `skipped` how many events made no sense;
    `impossible_steps` of these are steps that end when they begin, or before.
    """

    header: Header
    steps: Spans = field(default_factory=Spans)
    loader: Spans = field(default_factory=Spans)
    ops: Spans = field(default_factory=Spans)
    kernels: Spans = field(default_factory=Spans)
    correlations: "array[int]" = field(default_factory=lambda: array("q"))
    collectives: Spans = field(default_factory=Spans)
    launches: Spans = field(default_factory=Spans)
    evaluations: Spans = field(default_factory=Spans)
    forward: Spans = field(default_factory=Spans)
    recomputed: Spans = field(default_factory=Spans)
    allocations: Spans = field(default_factory=Spans)
    reserved: Spans = field(default_factory=Spans)
    logging: Spans = field(default_factory=Spans)
    kernel_names: Numbers = field(default_factory=Numbers)
    op_names: Numbers = field(default_factory=Numbers)
    keys: Numbers = field(default_factory=Numbers)
    threads: Numbers = field(default_factory=Numbers)
    ops_of_thread: dict[int, int] = field(default_factory=dict)
    on_device: bool = False
    events: int = 0
    skipped: int = 0
    impossible_steps: int = 0
    broken: str | None = None
