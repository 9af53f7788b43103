"""Rank by step, in colours, from the step records alone: one HTML file for people without Grafana."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.diagnose.signals.columns import Floats, StepColumns
from harness.diagnose.signals.find import loose_files
from harness.diagnose.signals.read import read_columns
from harness.model.errors import PrerequisiteError
from harness.model.ranks import format_ranks

MOST_COLUMNS = 800
"""Steps are put together so that no more columns are drawn; the worst of them shows."""

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Map:
    """One picture. `values`: [ranks, steps], NaN where nothing was recorded."""

    title: str
    unit: str
    values: Grid


@dataclass(frozen=True)
class Maps:
    """All pictures of a run over the same ranks and steps. `per_column`: steps in one column."""

    ranks: Sequence[int]
    first_step: int
    last_step: int
    per_column: int
    attempts: int
    maps: Sequence[Map]
    complaints: Sequence[str]


_FIELDS = (
    ("step time, times the median", "", ("step_time_s",)),
    ("waiting for the other ranks", "s", ("comm_wait_s",)),
    ("waiting for data", "s", ("data_wait_s",)),
    ("memory, newest reading", "GiB", ("mem_reserved_peak", "rss_bytes")),
)


def read_maps(folders: Sequence[Path]) -> Maps:
    """Read all step records under some folders. Of a step that was done twice the last time counts.

    Raises:
        PrerequisiteError: there are no step records.
    """
    complaints: list[str] = []
    records: list[StepColumns] = []
    for path, name, attempt in loose_files(folders):
        try:
            columns, wrong = read_columns(path, name, attempt)
        except OSError as error:
            wrong, columns = [f"{name}: {error.strerror}"], None
        complaints += wrong
        if columns is not None and len(columns):
            records.append(columns)
    if not records:
        raise PrerequisiteError(f"{', '.join(map(str, folders))}: no step records here: give RUN/signals")
    records.sort(key=lambda c: c.attempt)
    ranks = sorted({c.rank for c in records})
    first, last = min(int(c.step.min()) for c in records), max(int(c.step.max()) for c in records)
    per_column = -(-(last - first + 1) // MOST_COLUMNS)
    maps = []
    for title, unit, names in _FIELDS:
        grid = _grid(records, {rank: row for row, rank in enumerate(ranks)}, first, last, names)
        if grid is None:
            continue
        if names == ("step_time_s",):
            grid = grid / np.nanmedian(grid)
        elif unit == "GiB":
            grid = _carried_on(grid)
        maps.append(Map(title, unit, _put_together(grid / (2**30 if unit == "GiB" else 1), per_column)))
    return Maps(ranks, first, last, per_column, len({c.attempt for c in records}), maps, complaints)


def _grid(
    records: Sequence[StepColumns], rows: Mapping[int, int], first: int, last: int, names: Sequence[str]
) -> Grid | None:
    grid: Grid = np.full((len(rows), last - first + 1), np.nan)
    for columns in records:
        values = next((columns.values[name] for name in names if name in columns.values), None)
        if values is not None:
            known = np.isfinite(values)
            grid[rows[columns.rank], columns.step[known] - first] = values[known]
    return None if np.isnan(grid).all() else grid


def _carried_on(grid: Grid) -> Grid:
    """Memory is read in some steps only: the reading holds until the next one."""
    newest = np.where(np.isnan(grid), 0, np.arange(grid.shape[1]))
    newest = np.maximum.accumulate(newest, axis=1)
    carried: Grid = np.take_along_axis(grid, newest, axis=1)
    return carried


def _put_together(grid: Grid, per_column: int) -> Grid:
    """The worst of every `per_column` steps."""
    missing = -grid.shape[1] % per_column
    padded = np.pad(grid, ((0, 0), (0, missing)), constant_values=np.nan)
    parts = padded.reshape(grid.shape[0], -1, per_column)
    worst: Floats = np.where(np.isnan(parts).all(axis=2), np.nan, np.fmax.reduce(parts, axis=2))
    return worst


def page(title: str, maps: Maps) -> str:
    """The whole page; pictures are inside it."""
    steps = f"steps {maps.first_step} to {maps.last_step}"
    each = f", {maps.per_column} a column: the worst shows" if maps.per_column > 1 else ""
    starts = (
        f", {maps.attempts} starts: of a step that was done again the last time" if maps.attempts > 1 else ""
    )
    head = f"{len(maps.ranks)} ranks ({format_ranks(maps.ranks)}), {steps}{each}{starts}"
    pictures = "".join(_figure(one, maps) for one in maps.maps)
    notes = "".join(f"<li>{html.escape(line)}</li>" for line in maps.complaints[:20])
    return _PAGE.format(
        title=html.escape(title),
        head=html.escape(head),
        pictures=pictures,
        notes=f"<h2>Not read</h2><ul>{notes}</ul>" if notes else "",
    )


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ margin: 1.5rem; font: 15px/1.4 system-ui, sans-serif; background: #fff; color: #111 }}
figure {{ margin: 1rem 0 }} img {{ max-width: 100% }} figcaption {{ color: #444 }}</style></head>
<body><h1>{title}</h1><p>{head}. White: nothing recorded.</p>{pictures}{notes}</body></html>
"""


def _figure(one: Map, maps: Maps) -> str:
    worst = np.unravel_index(int(np.nanargmax(one.values)), one.values.shape)
    step = maps.first_step + int(worst[1]) * maps.per_column
    value = f"{one.values[worst]:.3g} {one.unit}".strip()
    caption = f"{one.title}: highest on rank {maps.ranks[int(worst[0])]} at step {step}, {value}"
    data = base64.b64encode(_drawn(one, maps)).decode()
    alt = html.escape(caption)
    return (
        f'<figure><img alt="{alt}" src="data:image/png;base64,{data}"><figcaption>{alt}</figcaption></figure>'
    )


def _drawn(one: Map, maps: Maps) -> bytes:
    # Imported here: half a second, and only this page needs it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = min(9.0, max(1.6, 0.9 + len(maps.ranks) * 0.16))
    figure = Figure(figsize=(12, height), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    low, high = (float(v) for v in np.nanpercentile(one.values, (1, 99)))
    if not one.unit:
        low, high = 0.5, 2.0
    shown = axes.imshow(
        np.ma.masked_invalid(one.values),
        aspect="auto",
        interpolation="nearest",
        cmap="coolwarm" if not one.unit else "viridis",
        vmin=low,
        vmax=high if high > low else low + max(abs(low), 1.0) * 1e-3,
        extent=(maps.first_step - 0.5, maps.last_step + 0.5, len(maps.ranks) - 0.5, -0.5),
    )
    ticks = sorted({int(i) for i in np.linspace(0, len(maps.ranks) - 1, min(len(maps.ranks), 16))})
    axes.set_yticks(ticks, [str(maps.ranks[i]) for i in ticks])
    axes.set_ylabel("rank")
    axes.set_xlabel("step")
    axes.set_title(one.title, loc="left", fontsize=11)
    figure.colorbar(shown, ax=axes, label=one.unit or "x median", pad=0.01)
    out = io.BytesIO()
    canvas.print_figure(out, format="png")
    return out.getvalue()
