"""Bytes of one dump to plain Python values, safely: dumps come from other people."""

import io
import json
import pickle
from typing import NoReturn

MAX_DUMP_BYTES = 1 << 28
"""A 20000-entry dump is some 5 to 20 MB; a quarter of a gigabyte is not a dump."""


class NotADump(ValueError):
    """The bytes are not a Flight Recorder dump; the message says why, in one line."""


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
        # Buffered, since the unpickler then looks ahead instead of calling read() for every opcode.
        file = io.BufferedReader(io.BytesIO(data), buffer_size=1 << 18)
        return _PlainUnpickler(file, encoding="utf-8", errors="replace").load()
    except NotADump:
        raise
    except Exception as error:
        # The pickle machine raises nearly anything on damaged input.
        raise NotADump(f"not a pickle, or cut short ({type(error).__name__})") from None
