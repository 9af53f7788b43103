"""One rank dies in the middle of training.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/killed_rank.py --culprit 5 --mode segfault --workload fsdp
"""

import signal

from harness.worker.acts.deaths import EatMemory, KillSelf, LeaveEarly, Raise, Segfault
from harness.worker.acts.memory import EatDevice
from harness.worker.workloads import run_workload

ACTS = {
    "sigkill": KillSelf(signal.SIGKILL),
    "segfault": Segfault(),
    "exception": Raise(),
    "exit0": LeaveEarly(),
    "oom": EatMemory(),
    "device_oom": EatDevice(),
    "restart": KillSelf(signal.SIGKILL),
}

if __name__ == "__main__":
    run_workload(__doc__, ACTS)
