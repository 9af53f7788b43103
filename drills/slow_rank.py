"""One rank computes more slowly than its peers, who wait for it in every step.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/slow_rank.py --workload mlp --culprit 5 --at 50 --steps 120
"""

from harness.worker.acts.slopes import BusyNeighbours, CompetingKernel, SlowCompute
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(
        __doc__,
        {
            "forward": SlowCompute("forward"),
            "backward": SlowCompute("backward"),
            "host": BusyNeighbours(),
            "device": CompetingKernel(),
        },
    )
