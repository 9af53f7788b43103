"""Copying files of a running job: bounded, never a pipe or a device, with the mode of the original."""

import os
import shutil
import stat
from pathlib import Path

MAX_COPY_BYTES = 64 << 20
"""Of a longer log the end is kept: that is where a failure is."""


def copy_end(source: Path, target: Path, limit_bytes: int = MAX_COPY_BYTES) -> int:
    """Copy the last `limit_bytes` of a regular file. Returns how many bytes were left out at its start.

    Raises:
        OSError: not a regular file, or it cannot be read or written.
    """
    if not stat.S_ISREG(source.stat().st_mode):
        raise OSError(0, "not a regular file")
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file, target.open("wb") as copy:
        status = os.fstat(file.fileno())
        os.fchmod(copy.fileno(), 0o600 | stat.S_IMODE(status.st_mode) & 0o644)
        skipped = max(0, status.st_size - limit_bytes)
        file.seek(skipped)
        if skipped:
            # The rest of a line that was cut in two says nothing.
            skipped += len(file.readline(limit_bytes))
        shutil.copyfileobj(file, copy)
    return skipped
