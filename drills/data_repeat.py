"""A restarted rank's loader does not go on where it was.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/data_repeat.py --workload mlp --culprit 5 --at 20 --steps 60
"""

from harness.worker.acts.numerics import RepeatSamples
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"resume": RepeatSamples()})
