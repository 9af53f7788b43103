"""Validation meets a bad sample on one rank and tells everybody, who does not listen.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/branch.py --culprit 5 --workload fsdp
"""

from harness.worker.acts.flow import BadSample
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"bad_sample": BadSample()})
