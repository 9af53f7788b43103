"""A comparison for a tired person: one sentence, the parts then and now, the ranks that differ."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from harness.model.comparison import SAVE_ROW, Bucket, ComparedResult, Comparison, RankBuckets
from harness.report.terminal import WIDTH, plain_table, show_diagnosis

MAX_RANKS = 8
_SECONDS = "seconds"
_REAL_SHARE = 0.02
"""Smaller differences than this share of all that was measured then are printed, not coloured."""


def show_comparison(console: Console, result: ComparedResult) -> None:
    """Print what changed and why: at most 100 columns."""
    from harness.diagnose.api import Result

    _show_table(console, result.comparison)
    _show_ranks(console, result.comparison, result.diagnosis.culprits)
    show_diagnosis(console, Result(result.diagnosis, None, {}))


def _show_table(console: Console, comparison: Comparison) -> None:
    console.print(f"now   {comparison.now}", width=WIDTH, overflow="fold")
    console.print(f"then  {comparison.then}", width=WIDTH, overflow="fold")
    console.print()
    table = plain_table()
    table.add_column(_unit(comparison), no_wrap=True)
    for name in ("then", "now", "difference", "of then"):
        table.add_column(name, justify="right", no_wrap=True)
    step = max((row.then_s or 0.0 for row in _of_a_step(comparison)), default=0.0)
    scale = _scale(comparison)
    for row in comparison.rows:
        grew = row.grew_s
        style = _style(grew, (row.then_s or 0.0) if row.name == SAVE_ROW else step)
        table.add_row(
            row.name,
            _figure(row.then_s, scale),
            _figure(row.now_s, scale),
            _figure(grew, scale, sign=True),
            _share(row),
            style=style,
        )
    console.print(table, width=WIDTH)
    console.print()


def _show_ranks(console: Console, comparison: Comparison, culprits: Sequence[int]) -> None:
    """Differences rank by rank, those accused first, then those that changed most."""
    if len(comparison.ranks) < 2:
        return
    ordered = sorted(comparison.ranks, key=lambda r: (r.rank not in culprits, -_most(r), r.rank))
    shown = sorted(ordered[:MAX_RANKS], key=lambda r: r.rank)
    table = plain_table()
    table.add_column("difference", no_wrap=True)
    scale = _scale(comparison)
    for ranked in shown:
        style = "red" if ranked.rank in culprits else ""
        table.add_column(f"rank {ranked.rank}", justify="right", style=style, no_wrap=True)
    grew = [{row.name: row.grew_s for row in ranked.rows} for ranked in shown]
    for name in dict.fromkeys(name for rows in grew for name in rows):
        table.add_row(name, *(_figure(rows.get(name), scale, sign=True) for rows in grew))
    console.print(table, width=WIDTH)
    left = len(comparison.ranks) - len(shown)
    if left:
        console.print(Text(f"{left} more ranks changed less", style="dim"), width=WIDTH)
    console.print()


def _of_a_step(comparison: Comparison) -> list[Bucket]:
    """The rows that are parts of a step."""
    return [row for row in comparison.rows if row.name != SAVE_ROW]


def _most(ranked: RankBuckets) -> float:
    return max((abs(row.grew_s) for row in ranked.rows if row.grew_s is not None), default=0.0)


def _style(grew: float | None, whole: float) -> str:
    if grew is None or abs(grew) <= _REAL_SHARE * whole:
        return ""
    return "bold red" if grew > 0 else "green"


def _scale(comparison: Comparison) -> float:
    """1000 where seconds would begin with zeros."""
    rows = _of_a_step(comparison)
    values = [value for row in rows for value in (row.then_s, row.now_s) if value is not None]
    return 1e3 if max(values, default=1.0) < 1 and comparison.unit.startswith(_SECONDS) else 1.0


def _unit(comparison: Comparison) -> str:
    small = _scale(comparison) != 1
    return f"milli{comparison.unit}" if small else comparison.unit


def _figure(value: float | None, scale: float, sign: bool = False) -> str:
    """Three decimals; a dash where it was not measured."""
    if value is None:
        return "-"
    return f"{value * scale:+.3f}" if sign else f"{value * scale:.3f}"


def _share(row: Bucket) -> str:
    if row.grew_s is None or not row.then_s:
        return ""
    return f"{100 * row.grew_s / row.then_s:+.1f} %"
