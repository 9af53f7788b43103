"""Compiled patterns, kept between runs as Python keeps bytecode: compiling takes longer than reading 100 MiB.

They lie in the user's cache folder, one small file for each set of patterns, library and processor. What is
damaged, of another processor, or cannot be written is compiled anew, and nothing is said of it.
"""

import hashlib
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import hyperscan

from harness.bundle.codec import write_atomically

MAX_BYTES = 64 << 20


def kept(patterns: Sequence[object], compiled: Callable[[], hyperscan.Database]) -> hyperscan.Database:
    """The database of these patterns: from the cache if it is there, else compiled and put there.

    Raises: hyperscan.error, for a pattern that is none.
    """
    path = _place(patterns)
    found = _load(path)
    if found is not None:
        return found
    database = compiled()
    with suppress(OSError, hyperscan.error):
        data = hyperscan.dumpb(database)
        write_atomically(path, hashlib.sha256(data).digest() + data)
    return database


def _load(path: Path) -> hyperscan.Database | None:
    """A kept database, if it is whole; that its version and processor fit the library itself checks."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        kept_data = path.read_bytes()
        stated, data = kept_data[:32], kept_data[32:]
        if hashlib.sha256(data).digest() != stated:
            return None
        database = hyperscan.loadb(data, hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
        return database
    except (OSError, ValueError, hyperscan.error):
        return None


def _place(patterns: Sequence[object]) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '')}/.cache"
    # Its stubs do not know that it has a version.
    version = getattr(hyperscan, "__version__", "")
    what = (tuple(patterns), version, platform.machine())
    return Path(cache) / "drill" / f"patterns-{hashlib.sha256(repr(what).encode()).hexdigest()[:24]}.hs"
