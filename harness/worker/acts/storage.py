"""Checkpoint storage that answers late, or not at all."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from harness.worker.faults import Act, Fault

LATE_S = 0.4
"""How late slow storage has taken a file."""


class _LateFileSystem(FileSystem):
    """A file system that has a file only some time after it was written."""

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with super().create_stream(path, mode) as stream:
            yield stream
            time.sleep(LATE_S)


class SlowStorage(Act):
    """From its step on, this rank's part of a checkpoint goes to slow storage."""

    def storage(self, fault: Fault, step: int, folder: Path, writer: FileSystemWriter) -> FileSystemWriter:
        if fault.since(step):
            fault.fire()
            writer.fs = _LateFileSystem()
        return writer


class FullStorage(Act):
    """From its step on, this rank's part of a checkpoint meets a full disk: the kernel's own, /dev/full."""

    def storage(self, fault: Fault, step: int, folder: Path, writer: FileSystemWriter) -> FileSystemWriter:
        if fault.since(step):
            fault.fire()
            (folder / f"__{fault.env.rank}_0.distcp").symlink_to("/dev/full")
        return writer
