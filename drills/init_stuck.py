"""Ranks that do not come together.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/init_stuck.py --culprit 5
"""

from harness.worker.acts.network import ClosedStore, SleepBeforeJoin
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"absent": SleepBeforeJoin(), "store": ClosedStore()})
