"""Checkpoints to storage that is slow or full.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/ckpt_slow.py --workload mlp --culprit 5 --at 20 --steps 60
"""

from harness.worker.acts.storage import FullStorage, SlowStorage
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"slow": SlowStorage(), "failed": FullStorage()})
