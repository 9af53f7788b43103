"""One rank waits for something that its own process will never give.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/lock_stall.py --culprit 5 --mode logging
"""

from harness.worker.acts.stalls import HoldGil, LockCycle, StallInLogging
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"cycle": LockCycle(), "logging": StallInLogging(), "gil": HoldGil()})
