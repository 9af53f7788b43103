"""What glibc's malloc holds for this process: the CPU's counterpart of the device allocator's figures."""

import ctypes


class _Mallinfo2(ctypes.Structure):
    """Source: mallinfo(3), glibc 2.33 and newer."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


class _Symbol(ctypes.Structure):
    """Source: dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class Heap:
    """Reads the allocator. The cost grows with the number of free chunks: mallinfo2 walks them all."""

    def __init__(self, libc: ctypes.PyDLL) -> None:
        self._mallinfo2 = libc.mallinfo2
        self._mallinfo2.restype = _Mallinfo2
        self._mallinfo2.argtypes = ()

    @classmethod
    def find(cls) -> "Heap | None":
        """The allocator of this process; None without mallinfo2, or where it is not malloc's own.

        With a preloaded jemalloc, glibc's mallinfo2 speaks of a heap that nobody uses.
        """
        try:
            libc = ctypes.PyDLL(None)
            mallinfo2, malloc = _home(libc, "mallinfo2"), _home(libc, "malloc")
            return cls(libc) if mallinfo2 is not None and mallinfo2 == malloc else None
        except (AttributeError, OSError):
            return None

    def read(self) -> dict[str, int]:
        """Bytes now: in use, got from the kernel, and free inside what was got from the kernel."""
        found = self._mallinfo2()
        return {
            "mem_allocated_peak": found.uordblks + found.hblkhd,
            "mem_reserved_peak": found.arena + found.hblkhd,
            "mem_inactive_split": found.fordblks,
        }


def _home(libc: ctypes.PyDLL, name: str) -> bytes | None:
    """The file that defines a function."""
    symbol = _Symbol()
    address = ctypes.cast(getattr(libc, name), ctypes.c_void_p)
    return symbol.file if libc.dladdr(address, ctypes.byref(symbol)) else None
