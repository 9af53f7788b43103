"""How much this process has printed, where its output goes to files."""

import ctypes
import os
import stat

_SEEK_CUR = 1


class Output:
    """Bytes written to stdout and stderr so far, where they are regular files as under torchrun's redirects.

    It is the position in the file, not its size: equal where the file was opened for this output, still
    growing after a log rotation cut the file, and known without asking the server of a network
    filesystem, which could wait.
    """

    def __init__(self) -> None:
        # Keeps the GIL, unlike os.lseek.
        self._lseek = ctypes.PyDLL(None).lseek
        self._lseek.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_int)
        self._lseek.restype = ctypes.c_long
        files: dict[tuple[int, int], list[int]] = {}
        for fd in (1, 2):
            try:
                found = os.fstat(fd)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                files.setdefault((found.st_dev, found.st_ino), []).append(fd)
        self._files = tuple(files.values())

    def written(self) -> int | None:
        """Bytes so far, None where neither goes to a file; a file that both go to counts once."""
        if not self._files:
            return None
        return sum(max(0, *(int(self._lseek(fd, 0, _SEEK_CUR)) for fd in fds)) for fds in self._files)
