"""The loopback device of a network namespace, up or down."""

import fcntl
import socket
import struct

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
"""Source: netdevice(7)."""


OWN_NETWORK = "DRILL_OWN_NETWORK"
"""Set where the job has a network namespace of its own: only there may a fault take the link down."""


def set_loopback(up: bool) -> None:
    """Bring the loopback device of this process's network namespace up or down.

    Raises:
        PermissionError: this process may not administer its network namespace.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh", b"lo", 0)
        (flags,) = struct.unpack("16xh", fcntl.ioctl(control, _SIOCGIFFLAGS, request)[:18])
        flags = flags | _IFF_UP if up else flags & ~_IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags))
