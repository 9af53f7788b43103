"""One rank says the same thousands of times a step.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/log_flood.py --workload mlp --culprit 5 --at 20 --steps 60
"""

from harness.worker.acts.slopes import LogFlood
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"flood": LogFlood()})
