"""torchtitan's spans into step records, and what each rank was in when its log ends.

Source of the names: torchtitan, trainer.py (step, fetching_batch, fwd_bwd, optim) and
components/checkpoint.py (checkpoint_save, which runs after every step and saves on few).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from harness.diagnose.signals.columns import FIELDS, Floats, StepColumns
from harness.diagnose.signals.formats.builder import Piece
from harness.diagnose.signals.formats.foreign import OpenSpan
from harness.diagnose.signals.formats.torchtitan_events import Events
from harness.diagnose.texts.files import TextFile

FORMAT = "torchtitan"

SAVE_FLOOR_MS = 50.0
"""A checkpoint span without a tag on its step is a save from here on; where none is due it takes no time."""

TAIL_ROWS = 4096
"""So many of the last events are looked through for spans that were not left; a step has a dozen."""

_SPANS = {"fetching_batch": "data_wait_s", "fwd_bwd": "fwd_bwd_s"}
_SAVES = ("checkpoint_save", "checkpoint")
_KEY = ("segment", "step")


@dataclass(frozen=True)
class SpanLog:
    """What one process wrote. `program`: its `source`. `end`: unix seconds of its last event.

    `data_wait_s` is the sum over a step's micro-batches; `fwd_bwd_s` holds communication, so it is an extra
    column and no `compute_s`. A step that ended by an exception has no record.
    """

    rank: int
    program: str
    end: float
    pieces: tuple[Piece, ...]
    open_span: OpenSpan | None


def span_logs(events: Events, source: TextFile) -> Iterator[SpanLog]:
    """One for each rank and program in a file: one file is one process's, unless somebody joined them."""
    known = pl.coalesce("global_rank", "rank").fill_null(source.rank if source.rank is not None else 0)
    table = events.table.with_columns(known.alias("rank"), pl.col("source").fill_null(""))
    for (rank, program), part in table.partition_by(
        "rank", "source", as_dict=True, maintain_order=True
    ).items():
        part = _once(part)
        last = part["time_us"].max()
        yield SpanLog(
            int(rank),
            str(program),
            last / 1e6 if isinstance(last, int) else math.nan,
            tuple(_pieces(_with_durations(part), int(rank), source)),
            _open_span(part.tail(TAIL_ROWS), source.name),
        )


def _once(part: pl.DataFrame) -> pl.DataFrame:
    """Without the second of two equal events (two handlers, or a joined file)."""
    same = ["seq_id", "time_us", "log_type_name", "event_name", "task_name", "step"]
    return part.unique(subset=same, keep="first", maintain_order=True)


def _with_durations(part: pl.DataFrame) -> pl.DataFrame:
    """Adds `ms`, the value of an ``_end`` or the time since its ``_start``, and `segment`."""
    part = part.with_columns(pl.col("value").fill_nan(None).alias("ms"))
    ends = part.filter(pl.col("log_type_name").str.ends_with("_end"))
    if ends["ms"].null_count():
        paired = pl.Series("paired", _paired(part), dtype=pl.Float64)
        part = part.with_columns(pl.coalesce("ms", paired).alias("ms"))
    mark = pl.when(pl.col("log_type_name").is_in(["step_start", "step_end"])).then("step").forward_fill()
    back = (mark < mark.shift(1)).fill_null(value=False)
    return part.with_columns(back.cum_sum().alias("segment"))


def _paired(part: pl.DataFrame) -> list[float | None]:
    """Milliseconds between the events of a span, by task and name, the last that was entered first."""
    entered: dict[tuple[str | None, str], list[int]] = {}
    found: list[float | None] = []
    for task, name, at in part.select("task_name", "log_type_name", "time_us").iter_rows():
        took = None
        if name.endswith("_start") and at is not None:
            entered.setdefault((task, name.removesuffix("_start")), []).append(at)
        elif name.endswith("_end") and at is not None:
            starts = entered.get((task, name.removesuffix("_end")))
            took = (at - starts.pop()) / 1000 if starts else None
        found.append(took)
    return found


def _pieces(part: pl.DataFrame, rank: int, source: TextFile) -> Iterator[Piece]:
    named = pl.col("log_type_name")
    failed = part.filter(named.is_in(["step_error", "fetching_batch_error"])).select(_KEY)
    part = part.filter(pl.col("step").is_not_null())
    steps = (
        part.filter(named == "step_end")
        .join(failed, on=_KEY, how="anti", maintain_order="left")
        .group_by(_KEY, maintain_order=True)
        .agg(pl.col("time_us", "line").first(), (pl.col("ms").first() / 1000).alias("step_time_s"))
    )
    for span, name in _SPANS.items():
        steps = _joined(steps, part.filter(named == f"{span}_end"), name)
    tagged = pl.col("step_tags").list.join(" ").str.contains("checkpoint").fill_null(value=False)
    saves = part.filter(
        named.is_in([f"{span}_end" for span in _SAVES]) & (tagged | (pl.col("ms") >= SAVE_FLOOR_MS))
    )
    steps = _joined(steps, saves, "ckpt_duration_s")
    steps = _with_scalars(steps, part.filter(named == "metric_value"))
    for rows in steps.partition_by("segment", maintain_order=True):
        yield Piece(_columns(rows, rank, source), source.attempt, process=True)


def _joined(steps: pl.DataFrame, spans: pl.DataFrame, name: str) -> pl.DataFrame:
    """The seconds that a step spent in spans of one kind, null where it had none."""
    known = spans.filter(pl.col("ms").is_not_null())
    sums = known.group_by(_KEY).agg((pl.col("ms").sum() / 1000).alias(name))
    return steps.join(sums, on=_KEY, how="left", maintain_order="left")


def _with_scalars(steps: pl.DataFrame, scalars: pl.DataFrame) -> pl.DataFrame:
    """Scalars named like a field, whatever stands before the name: ``train.loss``, ``train/loss``."""
    field = pl.col("event_name").str.extract(r"([^./]+)$")
    scalars = scalars.with_columns(field.alias("field")).filter(
        pl.col("field").is_in(FIELDS) & pl.col("value").is_not_null() & ~pl.col("field").is_in(steps.columns)
    )
    for name in scalars["field"].unique().sort():
        said = scalars.filter(pl.col("field") == name).group_by(_KEY).agg(pl.col("value").last().alias(name))
        steps = steps.join(said, on=_KEY, how="left", maintain_order="left")
    return steps


def _columns(rows: pl.DataFrame, rank: int, source: TextFile) -> StepColumns:
    values: dict[str, Floats] = {}
    for name in rows.columns:
        if name in FIELDS or name == "fwd_bwd_s":
            column = rows[name].cast(pl.Float64).fill_null(math.nan).to_numpy().copy()
            if not np.isnan(column).all():
                values[name] = column
    return StepColumns(
        rank,
        source.attempt or 0,
        source.name,
        FORMAT,
        rows["time_us"].cast(pl.Float64).fill_null(math.nan).to_numpy() / 1e6,
        rows["step"].to_numpy().copy(),
        rows["line"].to_numpy().copy(),
        values,
    )


def _open_span(tail: pl.DataFrame, file: str) -> OpenSpan | None:
    """The span that was entered last of those that were not left, over all tasks."""
    entered: dict[str | None, list[tuple[str, int | None, int | None, int]]] = {}
    columns = ("task_name", "log_type_name", "step", "time_us", "line")
    for task, name, step, at, line in tail.select(columns).iter_rows():
        stack = entered.setdefault(task, [])
        if name.endswith("_start"):
            stack.append((name.removesuffix("_start"), step, at, line))
        elif name.endswith("_end"):
            ended = name.removesuffix("_end")
            # Leaving a span leaves those inside it; their own ends are lost lines.
            inside = next((i for i in range(len(stack) - 1, -1, -1) if stack[i][0] == ended), len(stack))
            del stack[inside:]
    open_ = [stack[-1] for stack in entered.values() if stack]
    if not open_:
        return None
    name, step, at, line = max(open_, key=lambda span: span[3])
    return OpenSpan(name, step, at / 1e6 if at is not None else math.nan, file, line)
