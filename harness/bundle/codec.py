"""Values to JSON, with the standard library only: ranks use this too."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import cast

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""What `to_json` returns. Not-finite numbers are the strings NaN, Infinity, -Infinity."""


def to_json(value: object) -> Json:
    """Turn a model value into plain JSON values; mapping keys become strings.

    Raises:
        TypeError: a value has no JSON form.
    """
    if isinstance(value, Enum):
        return cast(Json, value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [to_json(item) for item in items]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def dump_line(value: object) -> bytes:
    """One JSON object as a line, for append-only files."""
    return json.dumps(to_json(value), separators=(",", ":")).encode() + b"\n"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never half of it.

    Raises:
        OSError: the disk is full or the folder is not writable; the old content is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        scratch.write_bytes(data)
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: object) -> None:
    """Write one value as an indented JSON file, atomically."""
    write_atomically(path, json.dumps(to_json(value), indent=1).encode() + b"\n")
