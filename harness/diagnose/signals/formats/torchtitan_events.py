"""torchtitan's structured log, one JSON object a line, as a table of events.

Source of the fields: torchtitan, observability/structured_logger/jsonl_handler.py (TraceJsonlFormatter) and
structured_logging.py (log_trace_span): `value` of a span's ``_end`` is its duration in milliseconds.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

SCHEMA: Mapping[str, type[pl.DataType] | pl.DataType] = {
    "global_rank": pl.Int64,
    "rank": pl.Int64,
    "source": pl.String,
    "step": pl.Int64,
    "time_us": pl.Int64,
    "log_type": pl.String,
    "log_type_name": pl.String,
    "event_name": pl.String,
    "value": pl.Float64,
    "task_name": pl.String,
    "step_tags": pl.List(pl.String),
    "seq_id": pl.Int64,
}

SMALL_BYTES = 32 << 10
"""A damaged block is halved down to this size; what still cannot be read as a table is read line by line."""


@dataclass(frozen=True)
class Events:
    """A table with the columns of SCHEMA and `line`, in file order; `damaged` counts lines that are none.

    Where the file ends inside its last line, what can still be read of it is there, without a value.
    """

    table: pl.DataFrame
    damaged: int


class EventReader:
    """Collects the events of a file, block by block."""

    def __init__(self) -> None:
        self._tables: list[pl.DataFrame] = []
        self._damaged = 0

    def add(self, number: int, block: bytes) -> None:
        """Whole lines, of which the first is line `number`."""
        if not self._table(number, block):
            self._halve(number, block)

    def events(self) -> Events:
        """All that was read."""
        empty = pl.DataFrame(schema={**SCHEMA, "line": pl.Int64})
        return Events(pl.concat([empty, *self._tables]), self._damaged)

    def _table(self, number: int, block: bytes) -> bool:
        """Read a block in one go; False if it is damaged, or has lines that are not records."""
        count = block.count(b"\n") + (not block.endswith(b"\n"))
        try:
            table = pl.read_ndjson(block, schema=SCHEMA)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return False
        if len(table) != count:
            # Blank lines: the numbers of the rows are not those of the lines.
            return False
        lines = pl.int_range(number, number + count, eager=True, dtype=pl.Int64)
        self._keep(table.with_columns(lines.alias("line")))
        return True

    def _halve(self, number: int, block: bytes) -> None:
        middle = block.find(b"\n", len(block) // 2) + 1
        if len(block) < SMALL_BYTES or not 0 < middle < len(block):
            self._by_line(number, block)
            return
        for half in (block[:middle], block[middle:]):
            self.add(number, half)
            number += half.count(b"\n")

    def _by_line(self, number: int, block: bytes) -> None:
        rows: list[dict[str, Any]] = []
        raw = block.split(b"\n")
        for at, line in enumerate(raw, number):
            if not line.strip(b"\r \t\0"):
                continue
            last = at == number + len(raw) - 1
            row = _row(line)
            if row is None:
                self._damaged += 1
                row = _salvaged(line) if last else None
            if row is not None:
                rows.append({**row, "line": at})
        if rows:
            self._keep(pl.DataFrame(rows, schema={**SCHEMA, "line": pl.Int64}))

    def _keep(self, table: pl.DataFrame) -> None:
        """Points in time that are no measurement are of no use, and a third of the file."""
        wanted = pl.col("log_type_name").is_not_null() & (
            pl.col("log_type").ne_missing("instant") | (pl.col("log_type_name") == "metric_value")
        )
        self._tables.append(table.filter(wanted))


def _row(line: bytes) -> dict[str, Any] | None:
    # Any: whatever JSON another program wrote.
    try:
        said = json.loads(line.strip(b"\0"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    row: dict[str, Any] = {}
    for name, kind in SCHEMA.items():
        value = said.get(name)
        if kind == pl.Int64:
            number = int(value) if isinstance(value, float) and value.is_integer() else value
            fits = isinstance(number, int) and not isinstance(number, bool) and abs(number) < 2**62
            row[name] = number if fits else None
        elif kind == pl.Float64:
            row[name] = float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None
        elif kind == pl.String:
            row[name] = value.encode(errors="replace").decode() if isinstance(value, str) else None
        else:
            row[name] = [tag for tag in value if isinstance(tag, str)] if isinstance(value, list) else None
    return row


def _salvaged(line: bytes) -> dict[str, Any] | None:
    """What a torn line still says: the keys before the break, if the name of the event is among them."""
    text = line.decode(errors="replace").lstrip("\r")
    for end in range(len(text) - 1, 0, -1):
        if text[end] == ",":
            row = _row((text[:end] + "}").encode())
            if row is not None:
                row["value"] = None
                return row if row["log_type_name"] else None
    return None


def event_lines(blocks: Iterable[tuple[int, bytes]]) -> Events:
    """The events of a whole file. Raises what reading the blocks raises."""
    reader = EventReader()
    for number, block in blocks:
        reader.add(number, block)
    return reader.events()
