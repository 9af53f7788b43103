"""One rank is stopped and does not go on.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/frozen_rank.py --culprit 5
"""

from harness.worker.acts.stalls import Freeze
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"sigstop": Freeze()})
