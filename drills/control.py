"""Any workload with nothing broken: the run that must be called healthy.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/control.py --workload fsdp --save-every 2
"""

from harness.worker.faults import Act
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"none": Act()})
