"""One bit of one gradient element flips on one replica after the all-reduce.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/grad_tamper.py --workload mlp --culprit 5 --at 20 --steps 60
"""

from harness.worker.acts.numerics import FlipBit
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"flip": FlipBit()})
