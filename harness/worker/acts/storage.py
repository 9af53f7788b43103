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


class _FullFileSystem(FileSystem):
    """A file system without room: what is written meets the kernel's own full device."""

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with Path("/dev/full").open(mode) as stream:
            yield stream


class FullStorage(Act):
    """From its step on, this rank's part of a checkpoint meets a full disk."""

    def storage(self, fault: Fault, step: int, folder: Path, writer: FileSystemWriter) -> FileSystemWriter:
        if fault.since(step):
            fault.fire()
            writer.fs = _FullFileSystem()
        return writer
