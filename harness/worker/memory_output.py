"""How much this process has printed, where its output goes to files."""

import os
import stat


class Output:
    """Bytes written to stdout and stderr so far, where they are regular files as under torchrun's redirects.

    It is the position in the file, not its size: equal where the file was opened for this output, still
    growing after a log rotation cut the file, and known without asking the server of a network
    filesystem, which could wait.
    """

    def __init__(self) -> None:
        self._fds: tuple[int, ...] = ()
        seen: set[tuple[int, int]] = set()
        for fd in (1, 2):
            try:
                found = os.fstat(fd)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                self._fds += (fd,)

    def written(self) -> int | None:
        """Bytes so far, None where neither goes to a file; a file that both go to counts once."""
        if not self._fds:
            return None
        try:
            return sum([os.lseek(fd, 0, os.SEEK_CUR) for fd in self._fds])
        except OSError:  # somebody has put a pipe there
            return None
