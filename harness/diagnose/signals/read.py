"""Reading our own step records: JSON lines to columns, whatever state the file is in."""

from __future__ import annotations

import io
import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.diagnose.signals.columns import FIELDS, Floats, Ints, StepColumns
from harness.diagnose.signals.starts import near
from harness.diagnose.texts.unpack import MAGIC, Gunzip

if TYPE_CHECKING:
    # Imported where it is used: it takes a quarter of a second, and most incidents have no step records.
    import polars as pl

_WORDS = ("loss", "grad_norm", "param_norm", "max_attn_logit", "loss_scale", "skipped", "lr")
"""Fields that may be the words NaN, Infinity, -Infinity, or a boolean."""


@lru_cache(maxsize=1)
def _schema() -> dict[str, type[pl.DataType]]:
    import polars as pl

    return {
        "t": pl.Float64,
        "step": pl.Float64,
        "rank": pl.Float64,
        "digest": pl.String,
        **{name: pl.String if name in _WORDS else pl.Float64 for name in FIELDS},
    }


_BOOLEANS = {"true": "1", "false": "0"}
_HEAD_BYTES = 1 << 16

HEAD_LINES = 20
"""JSON lines among which a step record must be: headers may stand before it."""

LARGEST_STEP = 2.0**53
"""Step numbers from here on are not exact as floating point numbers."""


def read_columns(path: Path, file: str, attempt: int) -> tuple[StepColumns | None, list[str]]:
    """One file's records in file order, with complaints; None where it has none.

    `file` is how citations name it. Lines that are no record are passed over and counted in a complaint; a
    torn last line is expected of a rank that was killed, and is no complaint. So are records whose step
    number is far away from all others.

    Raises:
        OSError: the file cannot be read.
    """
    data, torn = _bytes(path)
    complaints = [f"{file}: {torn}"] if torn else []
    whole = data[: data.rfind(b"\n") + 1]
    frame, lines = _parse(whole)
    steps, t = (frame.get_column(name).to_numpy() for name in ("step", "t"))
    good = np.isfinite(t) & (np.abs(steps) < LARGEST_STEP) & (steps == np.floor(steps))
    # Line by line, lines that are no JSON at all are not among the rows any more.
    lost = int(lines[-1] if len(lines) else 0) - int(good.sum())
    lost -= whole.count(b"\n\n") if lost else 0
    if lost > 0:
        complaints.append(f"{file}: {lost} lines are no step records")
    if not good.any():
        return None, complaints
    good[good] = close = near(steps[good].astype(np.int64))
    if not close.all():
        complaints.append(
            f"{file}: {int((~close).sum())} records with step numbers far from all others, left out"
        )
    kept = frame if good.all() else frame.filter(good.tolist())
    columns = StepColumns(
        rank=_rank(kept, path),
        attempt=attempt,
        file=file,
        format="drill",
        t=t[good],
        step=steps[good].astype(np.int64),
        line=lines[good],
        values=_values(kept),
        digest=_texts(kept.get_column("digest")),
    )
    return columns, complaints


def is_step_record(head: bytes) -> bool:
    """Whether a file that begins so holds our step records: one of its first lines is one."""
    looked_at = 0
    for line in head.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and {"t", "step", "rank"} <= record.keys():
            return True
        looked_at += 1
        if looked_at == HEAD_LINES:
            break
    return False


def head_of(path: Path) -> bytes:
    """The first bytes of a file, unpacked if it is gzip; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(_HEAD_BYTES)
        return zlib.decompressobj(31).decompress(start, _HEAD_BYTES) if start[:2] == b"\x1f\x8b" else start
    except (OSError, zlib.error):
        return b""


def _bytes(path: Path) -> tuple[bytes, str]:
    """A file's bytes, unpacked if it is gzip as far as that goes, and what is wrong with it, if anything."""
    with path.open("rb") as file:
        if file.read(2) != MAGIC[:2]:
            file.seek(0)
            return file.read(), ""
        file.seek(0)
        packed, unpacked = Gunzip(file), bytearray()
        try:
            while part := packed.read(1 << 20):
                unpacked += part
        except EOFError:
            return bytes(unpacked), "the gzipped file is cut off: read as far as it goes"
        except zlib.error:
            return bytes(unpacked), "the gzipped file is damaged: read as far as it goes"
        return bytes(unpacked), ""


def _parse(data: bytes) -> tuple[pl.DataFrame, Ints]:
    """All records at once; line by line where the reader stumbles. Line numbers count from 1."""
    import polars as pl

    count = data.count(b"\n")
    try:
        frame = pl.read_ndjson(io.BytesIO(data), schema=_schema(), ignore_errors=True) if count else None
        if frame is not None and len(frame) == count:
            return frame, np.arange(1, count + 1, dtype=np.int64)
    except pl.exceptions.PolarsError:
        pass
    numbers: list[int] = []
    clean: list[bytes] = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            numbers.append(number)
            clean.append(json.dumps({k: _plain(record[k]) for k in _schema() if k in record}).encode())
    lines = np.array(numbers, dtype=np.int64)
    if not clean:
        return pl.DataFrame(schema=_schema()), lines
    return pl.read_ndjson(io.BytesIO(b"\n".join(clean)), schema=_schema(), ignore_errors=True), lines


def _plain(value: object) -> object:
    """A value as the schema can take it: bare NaN tokens as words, numbers too large for a float left out."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


def _values(frame: pl.DataFrame) -> dict[str, Floats]:
    """Numeric fields that some record has; recorded NaN is infinity here, so that NaN alone means absent."""
    import polars as pl

    found: dict[str, Floats] = {}
    for name in FIELDS:
        column = frame.get_column(name)
        if column.null_count() == len(column):
            continue
        if name in _WORDS:
            numbers = column.cast(pl.Float64, strict=False)
            words = numbers.null_count() > column.null_count()
            column = column.replace(_BOOLEANS).cast(pl.Float64, strict=False) if words else numbers
        missing = column.is_null().to_numpy() if column.null_count() else None
        values = np.array(column.to_numpy(), dtype=np.float64)
        values[np.isnan(values)] = np.inf
        if missing is not None:
            values[missing] = np.nan
        if missing is None or not missing.all():
            found[name] = values
    return found


def _texts(column: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.str_]] | None:
    if column.null_count() == len(column):
        return None
    whole = column.fill_null("") if column.null_count() else column
    return np.asarray(whole.to_numpy(), dtype=np.str_)


def _rank(frame: pl.DataFrame, path: Path) -> int:
    ranks = frame.get_column("rank")
    ranks = ranks.drop_nulls() if ranks.null_count() else ranks
    if len(ranks) and 0 <= ranks[-1] < 1 << 31:
        return int(ranks[-1])
    digits = "".join(c for c in path.name.partition(".")[0].rpartition("_")[2] if c.isdigit())
    return int(digits) if digits else 0
