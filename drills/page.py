"""A steady job beside which the page drill plays: what breaks is frozen, killed or reported from outside.

Two modes break in the job itself: a loss that is not finite, a checkpoint that cannot be saved. Runs by
itself, with no harness around it:

    torchrun --nproc-per-node 4 drills/page.py --workload mlp --mode nan --culprit 3 --at 20 --steps 60
"""

from harness.worker.acts.numerics import BadInput
from harness.worker.acts.storage import FullStorage
from harness.worker.faults import Act
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    outside = {name: Act() for name in ("stall", "restart", "exporter", "xid", "own")}
    run_workload(__doc__, {**outside, "nan": BadInput(), "ckpt": FullStorage()})
