"""The allocator of one rank holds ever more than is in use.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/fragmentation.py --workload mlp --culprit 5 --at 20 --steps 60
"""

from harness.worker.acts.memory import Fragment
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"split": Fragment()})
