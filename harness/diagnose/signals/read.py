"""Reading our own step records: JSON lines to columns, whatever state the file is in."""

import gzip
import io
import json
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from harness.diagnose.signals.columns import FIELDS, Floats, Ints, StepColumns

_WORDS = ("loss", "grad_norm", "param_norm", "max_attn_logit", "loss_scale", "skipped", "lr")
"""Fields that may be the words NaN, Infinity, -Infinity, or a boolean."""

_SCHEMA: dict[str, type[pl.DataType]] = {
    "t": pl.Float64,
    "step": pl.Float64,
    "rank": pl.Float64,
    "digest": pl.String,
    **{name: pl.String if name in _WORDS else pl.Float64 for name in FIELDS},
}
_HEAD_BYTES = 1 << 16


def read_columns(path: Path, file: str, attempt: int) -> tuple[list[StepColumns], list[str]]:
    """One file's records, one value a start of the job: where the steps go back, somebody started again.

    `file` is how citations name it. Lines that are no record are passed over and counted in a complaint; a
    torn last line is expected of a rank that was killed, and is no complaint. Of several records of one step
    in one start the last counts.

    Raises:
        OSError: the file cannot be read.
    """
    data = _bytes(path)
    whole = data[: data.rfind(b"\n") + 1]
    frame, lines = _parse(whole)
    read = frame.select("t", "step", "rank", "digest", *(_number(name) for name in FIELDS))
    good = (
        read["step"].is_finite().fill_null(False).to_numpy()
        & read["t"].is_finite().fill_null(False).to_numpy()
    )
    # Line by line, lines that are no JSON at all are not among the rows any more.
    lost = int(lines[-1] if len(lines) else 0) - int(good.sum())
    lost -= whole.count(b"\n\n") if lost else 0
    complaints = [f"{file}: {lost} lines are no step records"] if lost > 0 else []
    if not good.any():
        return [], complaints
    kept = read.filter(pl.Series(good))
    step = kept["step"].to_numpy().astype(np.int64)
    columns = StepColumns(
        rank=_rank(kept, path),
        attempt=attempt,
        file=file,
        format="drill",
        t=kept["t"].to_numpy(),
        step=step,
        line=lines[good],
        values={name: _floats(kept[name]) for name in FIELDS if kept[name].null_count() < len(kept)},
        digest=_texts(kept["digest"]),
    )
    return _starts(columns), complaints


def is_step_record(head: bytes) -> bool:
    """Whether a file that begins so holds our step records."""
    for line in head.splitlines()[:3]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        return isinstance(record, dict) and {"t", "step", "rank"} <= record.keys()
    return False


def head_of(path: Path) -> bytes:
    """The first bytes of a file, unpacked if it is gzip; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(_HEAD_BYTES)
        return zlib.decompressobj(31).decompress(start, _HEAD_BYTES) if start[:2] == b"\x1f\x8b" else start
    except (OSError, zlib.error):
        return b""


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    unpacked = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while part := file.read(1 << 20):
                unpacked += part
    except (OSError, EOFError, zlib.error):
        # A torn archive: what could be unpacked counts.
        pass
    return bytes(unpacked)


def _parse(data: bytes) -> tuple[pl.DataFrame, Ints]:
    """All records at once; line by line where the reader stumbles. Line numbers count from 1."""
    count = data.count(b"\n")
    try:
        frame = pl.read_ndjson(io.BytesIO(data), schema=_SCHEMA, ignore_errors=True) if count else None
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
            clean.append(json.dumps({k: _plain(record[k]) for k in _SCHEMA if k in record}).encode())
    lines = np.array(numbers, dtype=np.int64)
    if not clean:
        return pl.DataFrame(schema=_SCHEMA), lines
    return pl.read_ndjson(io.BytesIO(b"\n".join(clean)), schema=_SCHEMA, ignore_errors=True), lines


def _plain(value: object) -> object:
    """A value as the schema can take it: bare NaN tokens as words, numbers too large for a float left out."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


def _number(name: str) -> pl.Expr:
    """A numeric field; recorded NaN becomes infinity, so that null alone means absent."""
    column = pl.col(name)
    if name in _WORDS:
        column = column.replace({"true": "1", "false": "0"}).cast(pl.Float64, strict=False)
    return column.fill_nan(float("inf")).alias(name)


def _floats(column: pl.Series) -> Floats:
    return column.fill_null(float("nan")).to_numpy()


def _texts(column: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.str_]] | None:
    if column.null_count() == len(column):
        return None
    return np.asarray(column.fill_null("").to_numpy(), dtype=np.str_)


def _rank(frame: pl.DataFrame, path: Path) -> int:
    ranks = frame["rank"].drop_nulls()
    if len(ranks) and 0 <= ranks[-1] < 1 << 31:
        return int(ranks[-1])
    digits = "".join(c for c in path.name.partition(".")[0].rpartition("_")[2] if c.isdigit())
    return int(digits) if digits else 0


def _starts(columns: StepColumns) -> list[StepColumns]:
    """Cut where the steps go back; drop all but the last record of a repeated step."""
    step = columns.step
    cuts = [0, *(np.flatnonzero(np.diff(step) < 0) + 1).tolist(), len(step)]
    found = []
    for number, (begin, end) in enumerate(pairwise(cuts)):
        rows = np.arange(begin, end)
        rows = rows[np.append(np.diff(step[begin:end]) != 0, True)]
        found.append(
            StepColumns(
                rank=columns.rank,
                attempt=columns.attempt + number,
                file=columns.file,
                format=columns.format,
                t=columns.t[rows],
                step=step[rows],
                line=columns.line[rows],
                values={name: values[rows] for name, values in columns.values.items()},
                digest=columns.digest[rows] if columns.digest is not None else None,
            )
        )
    return found
