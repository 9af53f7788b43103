"""A network namespace for one job: its loopback device can be taken down and nobody else notices."""

import ctypes
import os

from harness.worker.loopback import OWN_NETWORK, set_loopback

CLONE_NEWNET = 0x40000000


def enter_network_namespace() -> None:
    """Move this process, and all that it starts, into a network namespace with nothing but loopback.

    Raises:
        OSError: the kernel does not permit it.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"unshare(CLONE_NEWNET): {os.strerror(number)}")
    set_loopback(up=True)
    os.environ[OWN_NETWORK] = "1"
