"""Trains until somebody stops it from outside.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/external.py --steps 100000
"""

from harness.worker.faults import Act
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"sigterm": Act(), "cancel": Act(), "hangup": Act()})
