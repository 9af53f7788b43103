"""Whole lines at the end of one file, however damaged the file or the disk."""

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from harness.worker.signal_descriptor import out_of_the_way

RETRY_S = 10.0
"""A file that could not be opened is tried again after this long."""

_GONE = (errno.EBADF, errno.ESTALE)
"""Errors of a descriptor that will never work again: closed behind our back, or its server lost the file."""


class Appender:
    """Appends whole lines, each batch in one write. Never raises OSError.

    After a write that was cut short, and after an earlier life of the file that ended inside a line, the
    next line starts on a line of its own. `lost` counts lines that are not whole in the file; `problem`
    says why the last one is not.
    """

    def __init__(self, path: Path) -> None:
        self.lost = 0
        self.problem: str | None = None
        self._path = path
        self._fd: int | None = None
        self._torn = False
        self._retry_at = 0.0

    def open(self) -> None:
        """Make the folder and open the file. Where that fails, `append` tries again now and then."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Not blocking, for pipes: on files it changes nothing.
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = out_of_the_way(os.open(self._path, how, 0o644))
            self._torn = _ends_inside_a_line(self._fd, self._path)
        except (OSError, ValueError) as error:
            self.problem = str(error)
            self._retry_at = time.perf_counter() + RETRY_S

    def append(self, lines: bytes) -> None:
        """Write one or more lines, each with its newline."""
        if self._fd is None and time.perf_counter() >= self._retry_at:
            self.open()
        if self._fd is None:
            self.lost += lines.count(b"\n")
            return
        data = b"\n" + lines if self._torn else lines
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self.lost += lines.count(b"\n")
            self.problem = f"{self._path}: {error.strerror}"
            if error.errno in _GONE:
                self._fd = None
            return
        if written:
            self._torn = data[written - 1 : written] != b"\n"
        if written < len(data):
            # A record that lacks only its newline is whole.
            self.lost += data[written:].removeprefix(b"\n").count(b"\n")
            self.problem = f"{self._path}: only {written} of {len(data)} bytes were written"

    def close(self) -> None:
        """Close the file; nothing may be appended afterwards."""
        if self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None


def _ends_inside_a_line(fd: int, path: Path) -> bool:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        return False
    try:
        reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return os.pread(reader, 1, found.st_size - 1) != b"\n"
    finally:
        os.close(reader)
