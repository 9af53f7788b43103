"""Millions of small objects without cycles: looking for cycles among them costs time and finds none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: half of the time of loading dumps, a tenth of that of reading traces."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
