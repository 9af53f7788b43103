"""Seconds of blocks and of waits for data, added to fields of the current step."""

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import Generic, TypeVar, cast

T = TypeVar("T")
Add = Callable[[str, float], None]
"""Adds seconds to a field of the current step."""


class Timer:
    """A context manager that adds the seconds of its block; an exception passes through untouched."""

    def __init__(self, name: str, add: Add) -> None:
        self._name = name
        self._add = add
        self._begun = 0

    def __enter__(self) -> None:
        self._begun = time.perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._add(self._name, (time.perf_counter_ns() - self._begun) / 1e9)


class TimedData(Generic[T]):
    """A loader whose waits are timed: starting an iteration, and every next batch.

    Can be iterated over as often as the loader itself; has its length if it has one.
    """

    def __init__(self, loader: Iterable[T], name: str, add: Add) -> None:
        self._loader = loader
        self._timer = (name, add)
        self._own: Iterator[T] | None = None

    def __len__(self) -> int:
        return len(cast(Sized, self._loader))

    def __iter__(self) -> Iterator[T]:
        with Timer(*self._timer):
            source = iter(self._loader)
        while True:
            with Timer(*self._timer):
                try:
                    batch = next(source)
                except StopIteration:
                    return
            yield batch

    def __next__(self) -> T:
        if self._own is None:
            self._own = iter(self)
        return next(self._own)
