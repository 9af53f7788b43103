"""One rank keeps something of every step.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/host_leak.py --workload mlp --culprit 5 --at 20 --steps 60
"""

from harness.worker.acts.memory import Leak
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"leak": Leak()})
