"""One rank's step has another number of micro-batches.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/microbatch.py --culprit 5 --workload fsdp --micro-batches 4
"""

from harness.worker.acts.flow import MicroBatches
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"more": MicroBatches(+1), "fewer": MicroBatches(-1)})
