"""One rank's DataLoader worker reads from storage that never answers.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/dataloader_stall.py --culprit 5 --loader-workers 1
"""

from harness.worker.acts.stalls import BlockLoader
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"read": BlockLoader()})
