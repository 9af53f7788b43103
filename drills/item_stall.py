"""One rank reads a loss that is never computed: `.item()` does not return.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/item_stall.py --culprit 5 --workload fsdp
"""

from harness.worker.acts.stalls import BlockStream, StallInItem
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"item": StallInItem(), "stream": BlockStream()})
