"""Working on many files on all cores. The answer does not depend on how many."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

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


def each_file(
    files: Sequence[TextFile],
    work: Callable[[TextFile], T],
    lost: Callable[[TextFile, str], T],
    on_progress: OnProgress = lambda done, total: None,
    workers: int | None = None,
) -> list[T]:
    """`work` of each file, in the order of `files`; in forked processes if the files are large.

    `work` may be any function; what it returns must pickle. Files of kind ``spans`` are worked on in this
    process always: polars reads them, whose threads a forked process lacks and would wait for. Where a
    process dies over a file (out of memory), `lost` gives that file's result from a phrase for a complaint.
    """
    results: dict[int, T] = {}
    elsewhere = [index for index, file in enumerate(files) if file.kind != SPANS]
    count = workers or _workers([files[index] for index in elsewhere])
    if count > 1 and elsewhere:
        _in_processes(files, elsewhere, work, lost, on_progress, count, results)
    for index, file in enumerate(files):
        if index not in results:
            results[index] = work(file)
            on_progress(len(results), len(files))
    return [results[index] for index in range(len(files))]


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


def _in_processes(
    files: Sequence[TextFile],
    numbers: Sequence[int],
    work: Callable[[TextFile], T],
    lost: Callable[[TextFile, str], T],
    on_progress: OnProgress,
    count: int,
    results: dict[int, T],
) -> None:
    # Functions need not pickle: forked children find them here.
    _shared.append((files, work))
    try:
        left = _run(_parts(files, numbers), count, results, lambda: on_progress(len(results), len(files)))
        for part in left:
            for index in part:
                # A dead process takes all others with it: whose fault it was shows when each is alone.
                if _run([[index]], 1, results, lambda: None):
                    results[index] = lost(files[index], "the process that read it died (out of memory?)")
                on_progress(len(results), len(files))
    finally:
        _shared.pop()


def _run(
    parts: list[list[int]], count: int, results: dict[int, T], step: Callable[[], None]
) -> list[list[int]]:
    """Work on parts; those come back whose process died, or that had no process any more."""
    left: list[list[int]] = []
    with ProcessPoolExecutor(min(count, len(parts)), mp_context=get_context("fork")) as pool:
        running: dict[Future[list[T]], list[int]] = {}
        for part in parts:
            try:
                running[pool.submit(_work, part)] = part
            except BrokenProcessPool:
                left.append(part)
        pending = set(running)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    results.update(zip(running[future], future.result(), strict=True))
                except BrokenProcessPool:
                    left.append(running[future])
            step()
    return left


_shared: list[tuple[Sequence[TextFile], Callable[[TextFile], object]]] = []


def _work(part: list[int]) -> list[T]:
    files, work = _shared[-1]
    return [work(files[index]) for index in part]  # type: ignore[misc]
