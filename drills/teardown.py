"""Training is over, and one rank does not come to the last barrier.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/teardown.py --culprit 5
"""

from harness.worker.acts.stalls import LateShutdown
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"late": LateShutdown()})
