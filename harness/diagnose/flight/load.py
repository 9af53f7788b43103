"""Bytes of one dump to plain Python values, safely: dumps come from other people."""

import io
import json
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

MAX_DUMP_BYTES = 1 << 28
"""A 20000-entry dump is some 5 to 20 MB; a quarter of a gigabyte is not a dump."""


class NotADump(ValueError):
    """The bytes are not a Flight Recorder dump; the message says why, in one line."""


_MEMORY_BASE_BYTES = 64 << 20
_MEMORY_FACTOR = 64
"""Unpickled dumps take some ten times their size; a few bytes can ask for gigabytes (the memo's index)."""


@contextmanager
def _bounded_memory(extra_bytes: int) -> Iterator[None]:
    """Let this process grow by no more than `extra_bytes`: what asks for more gets a MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    except (OSError, ValueError, IndexError):
        yield
        return
    limit = pages * resource.getpagesize() + extra_bytes
    limits = [n for n in (limit, soft, hard) if n != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _Lookahead:
    """Bytes as a file in which the unpickler looks ahead, instead of calling read() for every opcode.

    Without `readinto`, on which CPython's unpickler stumbles when a bytearray is cut short.
    """

    def __init__(self, data: bytes) -> None:
        file = io.BufferedReader(io.BytesIO(data), buffer_size=1 << 16)
        self.read = file.read
        self.readline = file.readline
        self.peek = file.peek


class _PlainUnpickler(pickle.Unpickler):
    """Builds dicts, lists, tuples, strings and numbers; resolves no names, so nothing can run."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotADump(f"the pickle asks for {module}.{name}: a dump needs no code, refused")

    def persistent_load(self, pid: object) -> NoReturn:
        raise NotADump("the pickle asks for an outside object, refused")


def load_dump(data: bytes) -> dict[str, object]:
    """Decode a pickle or JSON dump into a dict with an ``entries`` list of dicts.

    Raises:
        NotADump: empty, truncated, too large, not a dump, or a pickle that wants to run something.
    """
    if not data:
        raise NotADump("empty file")
    if len(data) > MAX_DUMP_BYTES:
        raise NotADump(f"{len(data)} bytes: larger than any dump")
    value = _decode(data)
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        raise NotADump("no 'entries' list: not a Flight Recorder dump")
    if not all(isinstance(entry, dict) for entry in value["entries"]):
        raise NotADump("'entries' holds things that are not records")
    return value


def _decode(data: bytes) -> object:
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise NotADump(f"broken JSON: {error}") from None
    try:
        with _bounded_memory(_MEMORY_BASE_BYTES + _MEMORY_FACTOR * len(data)):
            return _PlainUnpickler(_Lookahead(data), encoding="utf-8", errors="replace").load()
    except NotADump:
        raise
    except Exception as error:
        # The pickle machine raises nearly anything on damaged input.
        raise NotADump(f"not a pickle, or cut short ({type(error).__name__})") from None
