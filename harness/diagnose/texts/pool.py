"""Working on many files on all cores. The answer does not depend on how many."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Generic, TypeVar

from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.sniff import SPANS

PARALLEL_FROM_BYTES = 32 << 20
"""Below this much, starting processes costs more than it saves."""

PACKED_WEIGHT = 10
"""Packed text takes as long as so many times its size."""

_PART_BYTES = 8 << 20
_PART_FILES = 64

T = TypeVar("T")
OnProgress = Callable[[int, int], None]
"""Called with how many of how many files are done."""


class EachFile(Generic[T]):
    """`work` of each file, begun at once in forked processes if the files are large.

    `work` may be any function; what it returns must pickle. Files of kind ``spans`` are worked on in this
    process always: polars reads them, whose threads a forked process lacks and would wait for. Where a
    process dies over a file (out of memory), `lost` gives that file's result from a phrase for a complaint.
    """

    def __init__(
        self,
        files: Sequence[TextFile],
        work: Callable[[TextFile], T],
        lost: Callable[[TextFile, str], T],
        workers: int | None = None,
    ) -> None:
        self._files, self._do, self._lost = files, work, lost
        self._results: dict[int, T] = {}
        elsewhere = [index for index, file in enumerate(files) if file.kind != SPANS]
        count = workers or _workers([files[index] for index in elsewhere])
        parts = _parts(files, elsewhere) if count > 1 else []
        self._begun = _Parts(files, work, parts, count) if parts else None

    def results(self, on_progress: OnProgress = lambda done, total: None) -> list[T]:
        """Wait for all; in the order of the files."""
        files, results = self._files, self._results
        if self._begun is not None:
            for part in self._begun.collect(results, lambda: on_progress(len(results), len(files))):
                for index in part:
                    # A dead process takes all others with it: whose fault it was shows when each is alone.
                    if _Parts(files, self._do, [[index]], 1).collect(results):
                        results[index] = self._lost(
                            files[index], "the process that read it died (out of memory?)"
                        )
                    on_progress(len(results), len(files))
        for index, file in enumerate(files):
            if index not in results:
                results[index] = self._do(file)
                on_progress(len(results), len(files))
        return [results[index] for index in range(len(files))]

    def close(self) -> None:
        """End the processes, if nobody waits for them any more."""
        if self._begun is not None:
            self._begun.pool.shutdown(wait=True, cancel_futures=True)


def each_file(
    files: Sequence[TextFile],
    work: Callable[[TextFile], T],
    lost: Callable[[TextFile, str], T],
    on_progress: OnProgress = lambda done, total: None,
    workers: int | None = None,
) -> list[T]:
    """`work` of each file, as `EachFile`, in the order of `files`."""
    return EachFile(files, work, lost, workers).results(on_progress)


def _workers(files: Sequence[TextFile]) -> int:
    small = sum(map(_weight, files)) < PARALLEL_FROM_BYTES
    return 1 if small else min(len(os.sched_getaffinity(0)), len(files))


def _weight(file: TextFile) -> int:
    return file.size_bytes * (PACKED_WEIGHT if file.name.endswith((".gz", ".bz2", ".xz")) else 1)


def _parts(files: Sequence[TextFile], numbers: Sequence[int]) -> list[list[int]]:
    """Files by number, the largest first, small ones together."""
    parts: list[list[int]] = []
    size = 0
    for index in sorted(numbers, key=lambda i: -_weight(files[i])):
        if not parts or size + _weight(files[index]) > _PART_BYTES or len(parts[-1]) >= _PART_FILES:
            parts.append([])
            size = 0
        parts[-1].append(index)
        size += _weight(files[index])
    return parts


class _Parts(Generic[T]):
    """Parts that are being worked on by processes of their own."""

    def __init__(
        self,
        files: Sequence[TextFile],
        work: Callable[[TextFile], T],
        parts: Sequence[list[int]],
        count: int,
    ) -> None:
        self.pool = ProcessPoolExecutor(min(count, len(parts)), mp_context=get_context("fork"))
        self._running: dict[Future[list[T]], list[int]] = {}
        self._left: list[list[int]] = []
        # Functions need not pickle: forked children, which begin with the first part, find them here.
        _shared.append((files, work))
        try:
            for part in parts:
                try:
                    self._running[self.pool.submit(_work, part)] = part
                except BrokenProcessPool:
                    self._left.append(part)
        finally:
            _shared.pop()

    def collect(self, results: dict[int, T], step: Callable[[], None] = lambda: None) -> list[list[int]]:
        """Wait; those parts come back whose process died, or that had no process any more."""
        with self.pool:
            pending = set(self._running)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    try:
                        results.update(zip(self._running[future], future.result(), strict=True))
                    except BrokenProcessPool:
                        self._left.append(self._running[future])
                step()
        return self._left


_shared: list[tuple[Sequence[TextFile], Callable[[TextFile], object]]] = []


def _work(part: list[int]) -> list[T]:
    files, work = _shared[-1]
    return [work(files[index]) for index in part]  # type: ignore[misc]
