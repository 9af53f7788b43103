"""All ranks on one card: what NCCL must be told for that, in each rank, before it starts.

NCCL refuses two ranks whose host and card are the same ("Duplicate GPU detected", since 2.30 "Multiple Ranks
are using the same GPU/Partition"). What it takes for the host comes from NCCL_HOSTID: with one of its own
each rank looks like its own node, and all talk through sockets. Since 2.30 there is a switch as well, which
alone would do, but for ranks that then look for shared memory and peer access on one card.
"""

import os
from collections.abc import Mapping

import torch

from harness.worker.environment import SHARE_GPU

MULTI_RANK_SINCE = (2, 30)

SOCKETS: Mapping[str, str] = {
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    # One channel, one block: ranks take turns on the card, and every block of each must get its turn.
    "NCCL_MIN_NCHANNELS": "1",
    "NCCL_MAX_NCHANNELS": "1",
    # Where an image exports 1, NCCL refuses several ranks on one device.
    "NCCL_NVLS_ENABLE": "0",
    # Nodes that share NVLink across hosts are one to it, whatever they are called.
    "NCCL_MNNVL_ENABLE": "0",
}


def sharing_environment(rank: int, nccl: tuple[int, ...] | None) -> dict[str, str]:
    """The variables of one rank on a card that it shares; `nccl` is its version, None if unknown."""
    env = {"NCCL_HOSTID": f"drill-{rank}", **SOCKETS}
    if nccl is None or nccl >= MULTI_RANK_SINCE:
        # A version that does not know it passes it over.
        env["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    return env


def nccl_version() -> tuple[int, ...] | None:
    """The version of the NCCL that this torch loaded; None in a build without it. Starts nothing."""
    if not hasattr(torch._C, "_nccl_version"):
        return None
    return tuple(part for part in torch.cuda.nccl.version() if isinstance(part, int))  # type: ignore[no-untyped-call]


def share_gpu_if_told(rank: int) -> bool:
    """Set the variables if the harness says that all ranks share a card. Whether it does."""
    if os.environ.get(SHARE_GPU) != "1":
        return False
    os.environ.update(sharing_environment(rank, nccl_version()))
    return True
