"""One sample of one rank is not finite, in one step.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/loss_nan.py --workload mlp --culprit 5 --at 20 --steps 60
"""

from harness.worker.acts.numerics import BadInput
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"data": BadInput()})
