"""One stage of a pipeline sends nothing, to the wrong rank, or too much.

Runs by itself, with no harness around it:

    torchrun --nproc-per-node 8 drills/p2p.py --culprit 2 --workload pipeline --mode missing
"""

from harness.worker.acts.flow import DropMessage, WrongPeer, WrongSize
from harness.worker.workloads import run_workload

if __name__ == "__main__":
    run_workload(__doc__, {"missing": DropMessage(), "wrong_peer": WrongPeer(), "size": WrongSize()})
