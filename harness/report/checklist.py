"""A checklist as people read it: a line an item in the terminal, a table in Markdown, a page in HTML."""

import html
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.checklist.standing import measured, tally
from harness.checklist.store import FOLDER
from harness.jobenv import options_of
from harness.model.checklist import (
    Checklist,
    ChecklistRun,
    Figure,
    Item,
    ItemOutcome,
    ItemResult,
    ItemStanding,
    Obstacle,
    StepResult,
)
from harness.report.markdown import code, prose
from harness.report.obstacles import grouped

STYLES = {
    ItemOutcome.PASS: "green",
    ItemOutcome.REHEARSED: "cyan",
    ItemOutcome.WAIVED: "yellow",
    ItemOutcome.FAIL: "bold red",
    ItemOutcome.INCONCLUSIVE: "bold yellow",
    ItemOutcome.NOT_RUN: "dim",
}
_OPEN = (ItemOutcome.FAIL, ItemOutcome.INCONCLUSIVE, ItemOutcome.NOT_RUN)
"""What cannot be signed for; a person's own step does not count among them."""
_COLOURS = {
    ItemOutcome.PASS: "#15803d",
    ItemOutcome.REHEARSED: "#0e7490",
    ItemOutcome.WAIVED: "#b45309",
    ItemOutcome.FAIL: "#b91c1c",
    ItemOutcome.INCONCLUSIVE: "#b45309",
    ItemOutcome.NOT_RUN: "#57534e",
}


def word(outcome: ItemOutcome) -> str:
    """An outcome in words."""
    return outcome.value.replace("_", " ")


def show_item(console: Console, item: Item, result: ItemResult) -> None:
    """One item as it ended: outcome, title, why; where it did not pass, what to look at."""
    line = Text()
    line.append(f"{word(result.outcome):<12}", STYLES[result.outcome])
    line.append(f"  {item.id:<14}", "bold")
    line.append(f"  {result.why}")
    line.append(f"  ({'kept' if result.carried_from else f'{result.seconds:.1f} s'})", "dim")
    console.print(line, soft_wrap=True)
    if result.outcome in (ItemOutcome.FAIL, ItemOutcome.INCONCLUSIVE):
        for step in result.steps:
            if step.outcome is result.outcome:
                for said in step.says[:3]:
                    console.print(f"{'':<14}{said}", soft_wrap=True, markup=False)
                if step.bundle:
                    console.print(f"{'':<14}look: {step.bundle}", style="dim", soft_wrap=True, markup=False)


def show_end(console: Console, checklist: Checklist, run: ChecklistRun, path: Path) -> None:
    """What a run came to, and what comes next."""
    counts: dict[ItemOutcome, int] = {}
    for result in run.items:
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
    parts = [f"{counts[outcome]} {word(outcome)}" for outcome in ItemOutcome if outcome in counts]
    console.print(
        f"\n{', '.join(parts) or 'nothing was run'}; stored in {path}", soft_wrap=True, markup=False
    )
    for remark in run.remarks:
        console.print(f"note: {remark}", style="yellow", soft_wrap=True, markup=False)
    out = () if path.parent.parent == FOLDER else ("--out", str(path.parent.parent))
    file = shlex.join((str(checklist.path), *out))
    again = shlex.join((str(checklist.path), *options_of(run.fingerprint.files), *out))
    outcomes = {r.id: measured(item, r) for r in run.items if (item := checklist.item(r.id)) is not None}
    bad = [id_ for id_, outcome in outcomes.items() if outcome in _OPEN]
    if bad:
        items = " ".join(f"--item {id_}" for id_ in bad)
        console.print(
            f"again, once mended: drill checklist run {again} {items}", soft_wrap=True, markup=False
        )
    elif not run.complete:
        console.print(f"go on with: drill checklist run {again} --resume", soft_wrap=True, markup=False)
    else:
        console.print(f"sign it: drill checklist sign {file} --as NAME", soft_wrap=True, markup=False)


def show_standings(console: Console, checklist: Checklist, standings: Sequence[ItemStanding]) -> None:
    """The table of all items as they stand now."""
    table = Table(title=f"{checklist.name}: {checklist.summary}" if checklist.summary else checklist.name)
    for name in ("item", "outcome", "figures and criterion", "age", "signed by"):
        table.add_column(name, overflow="fold")
    for standing in standings:
        table.add_row(
            standing.item.id,
            Text(word(standing.outcome), STYLES[standing.outcome]),
            Text("\n".join(_figures(standing)) or standing.why),
            age_text(standing.age_s),
            standing.signed_by or "",
        )
    console.print(table)
    console.print(summary_line(standings))


def summary_line(standings: Sequence[ItemStanding]) -> str:
    """How many items came to what."""
    return ", ".join(f"{count} {word(outcome)}" for outcome, count in tally(standings).items())


def show_obstacles(console: Console, obstacles: Sequence[Obstacle]) -> None:
    """One line an obstacle with the command that removes it; like ones together."""
    for names, why, remedy in grouped(obstacles):
        line = Text()
        line.append(f"{names}: ", "bold")
        line.append(why)
        console.print(line, soft_wrap=True)
        console.print(f"    {remedy}", style="dim", soft_wrap=True, markup=False)


def standings_markdown(checklist: Checklist, standings: Sequence[ItemStanding], now: float) -> str:
    """The table for a launch review, and under it what is open, waived, and how it was measured."""
    heads = ("item", "outcome", "figures", "criterion", "age", "signed by")
    rows = [
        (
            prose(s.item.title, in_table=True),
            word(s.outcome),
            prose("; ".join(_figures(s)) or s.why, in_table=True),
            prose(s.item.criterion, in_table=True),
            age_text(s.age_s),
            prose(s.signed_by or "", in_table=True),
        )
        for s in standings
    ]
    lines = [heads, ("---",) * len(heads), *rows]
    blocks = [
        f"# Checklist {checklist.name}",
        f"{summary_line(standings)}. As of {_utc(now)} UTC.",
        "\n".join(f"| {' | '.join(cells)} |" for cells in lines),
    ]
    if waived := [s for s in standings if s.waiver is not None]:
        listed = [f"- {prose(s.item.title)}: {prose(s.why)}" for s in waived]
        blocks += ["## Waivers", "\n".join(listed)]
    if obstacles := [o for s in standings for o in s.obstacles]:
        listed = [
            f"- {prose(names)}: {prose(why)}: {code(remedy)}" for names, why, remedy in grouped(obstacles)
        ]
        blocks += ["## Open", "\n".join(listed)]
    return "\n\n".join(blocks) + "\n"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>checklist {name}</title>
<style>
body {{ margin: 2rem auto; max-width: 76rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif;
       color: #1c1917; background: #fff }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; vertical-align: top; padding: .5rem .75rem; border-bottom: 1px solid #e7e5e4 }}
th {{ font-weight: 600; color: #57534e }}
.outcome {{ font-weight: 600; white-space: nowrap }}
.small {{ color: #57534e; font-size: 13px }}
code {{ font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere }}
</style></head><body>
<h1>Checklist {name}</h1>
<p>{summary}</p>
<table><thead><tr><th>item</th><th>outcome</th><th>figures</th><th>criterion</th><th>age</th>
<th>signed by</th></tr></thead>
<tbody>
{rows}
</tbody></table>
{sections}
</body></html>
"""


def standings_page(checklist: Checklist, standings: Sequence[ItemStanding], now: float) -> str:
    """The same as one self-contained HTML page; everything that comes from results is escaped."""
    rows = []
    for s in standings:
        figures = "<br>".join(html.escape(line) for line in _figures(s)) or html.escape(s.why)
        rows.append(
            f"<tr><td>{html.escape(s.item.title)}<div class=small>{html.escape(s.item.id)}</div></td>"
            f'<td class=outcome style="color:{_COLOURS[s.outcome]}">{word(s.outcome)}</td>'
            f"<td>{figures}</td><td class=small>{html.escape(s.item.criterion)}</td>"
            f"<td>{age_text(s.age_s)}</td><td>{html.escape(s.signed_by or '')}</td></tr>"
        )
    sections = []
    if waived := [s for s in standings if s.waiver is not None]:
        listed = "".join(f"<li>{html.escape(s.item.title)}: {html.escape(s.why)}</li>" for s in waived)
        sections.append(f"<h2>Waivers</h2><ul>{listed}</ul>")
    if obstacles := [o for s in standings for o in s.obstacles]:
        listed = "".join(
            f"<li>{html.escape(names)}: {html.escape(why)}<br><code>{html.escape(remedy)}</code></li>"
            for names, why, remedy in grouped(obstacles)
        )
        sections.append(f"<h2>Open</h2><ul>{listed}</ul>")
    return _PAGE.format(
        name=html.escape(checklist.name),
        summary=html.escape(f"{summary_line(standings)}. As of {_utc(now)} UTC."),
        rows="\n".join(rows),
        sections="\n".join(sections),
    )


def age_text(seconds: float | None) -> str:
    """How old a result is, for people."""
    if seconds is None:
        return ""
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


def _figures(standing: ItemStanding) -> list[str]:
    """What was measured, each step with what was wanted of it."""
    steps = standing.result.steps if standing.result else ()
    return [line for step in steps if (line := _step_line(step))]


def _step_line(step: StepResult) -> str:
    shown = step.shows or tuple(step.figures)[:3]
    figures = ", ".join(
        f"{name} {_figure(step.figures[name])}" for name in shown if step.figures.get(name) not in (None, "")
    )
    wanted = f" (wanted: {step.passes})" if step.passes else ""
    if figures:
        return f"{step.title}: {figures}{wanted}"
    return f"{step.title}: {step.why}" if step.why else ""


def _figure(value: Figure) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
