"""Batches come late, to one rank or to all, from one step on.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/data_starved.py --workload mlp --culprit 5 --at 20 --steps 60
"""

from harness.worker.acts.slopes import SlowLoader
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"one": SlowLoader(), "all": SlowLoader(everywhere=True)})
