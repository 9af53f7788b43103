"""The link goes down. Under plain torchrun that takes this machine's own loopback device down: do not.

Runs only through `drill run fabric`, in a network namespace of its own.
"""

from harness.worker.acts.network import LinkDown
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"link_down": LinkDown()})
