"""Files of a rank as we can reach them: in a container its paths mean something else than ours."""

import os
from contextlib import suppress
from pathlib import Path


class Reach:
    """Where the paths of one process lie for us. Goes on working after the process has ended.

    A process in our own mount namespace has our paths. For one in another, its root folder is held open
    and paths are resolved below it; where that is not permitted its paths are taken as they are.
    """

    def __init__(self, pid: int) -> None:
        self._root: int | None = None
        with suppress(OSError):
            foreign = Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
            if foreign or str(Path(f"/proc/{pid}/root").readlink()) != "/":
                self._root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def foreign(self) -> bool:
        """Whether the process sees other files than we do."""
        return self._root is not None

    def path(self, path: Path) -> Path:
        """An absolute path of the process, as we can open it."""
        if self._root is None:
            return path
        return Path(f"/proc/self/fd/{self._root}{path}")

    def close(self) -> None:
        """Let go of the process's files."""
        if self._root is not None:
            os.close(self._root)
            self._root = None
