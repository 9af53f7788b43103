"""A verdict for a tired person: one sentence, the calls around the break, two stacks, timings."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.diagnose.api import Result
from harness.diagnose.flight.arrivals import arrivals
from harness.diagnose.flight.describe import short_call
from harness.diagnose.flight.room import FlightResult
from harness.durations import Seconds
from harness.experiment import RunResult
from harness.model.breaktable import BreakTable
from harness.model.diagnosis import Citation, Diagnosis, RankState
from harness.model.kinds import GOES_ON, Kind
from harness.model.page import PageReport
from harness.model.ranks import format_ranks
from harness.model.records import RankRecords
from harness.model.verdict import Outcome, Verdict

WIDTH = 100
MAX_FRAMES = 4
MAX_STATES = 6
MAX_ARRIVALS = 8
MAX_CITED = 120
ASKED_FOR = frozenset(("watchdog_chain",))
"""Checks that only some runs have: of others they are not shown."""

_STYLES = {
    Outcome.PASS: "bold green",
    Outcome.FAIL: "bold red",
    Outcome.INCONCLUSIVE: "bold yellow",
}


def plain_table(*headers: str, gap: int = 2) -> Table:
    """A table without lines, `gap` columns between cells."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for header in headers:
        table.add_column(header)
    return table


def show_run(console: Console, run: RunResult) -> None:
    """Print one drill's result: at most 100 columns and 40 lines."""
    head = Text.assemble(
        (run.verdict.verdict.value.upper(), _STYLES[run.verdict.verdict]),
        f"  {run.plan.spec.name} ",
        (f"{run.plan.mode.name}", "bold"),
        f"  {run.plan.nproc} ranks, {run.plan.backend} ({run.plan.backend_reason})",
    )
    if run.plan.culprits:
        head.append(f", broken on purpose: rank {format_ranks(run.plan.culprits)}")
    console.print(head, width=WIDTH)
    console.print()
    _show_result(console, run.result)
    if run.page is not None:
        _show_page(console, run.page)
    _show_checks(console, run.verdict)
    if run.chain is not None:
        for name, link in run.chain.links.items():
            took = f"  {link.took_s:.2f} s" if link.took_s is not None else ""
            mark = "ok" if link.ok else "NO"
            console.print(f"watchdog {name.replace('_', ' ')} {mark}: {link.says}{took}", width=WIDTH)
    for note in run.plan.notes:
        console.print(f"note     {note}", width=WIDTH)
    console.print(_timings(run.seconds), style="dim", width=WIDTH)
    shown = _short(run.bundle)
    console.print(f"bundle   {shown}", width=WIDTH, overflow="fold")
    accused = (run.result.diagnosis.culprits or run.result.diagnosis.suspects)[:1]
    calls_differ = run.result.diagnosis.kind not in GOES_ON
    closer = f" --show-rank {accused[0]}" if accused and calls_differ else ""
    console.print(f"closer   drill diagnose {shown}{closer}", width=WIDTH, overflow="fold")


def _show_page(console: Console, page: PageReport) -> None:
    """Each link of the page's way with its share of the time, and every message that came."""
    rehearsal = ", a rehearsal: not the real threshold" if page.rehearsal else ""
    head = f"no {page.expected}" if page.seconds is None else f"{page.expected} after {page.seconds:.1f} s"
    console.print(Text(f"{head} (limit {page.within_s:g} s{rehearsal})", style="bold"), width=WIDTH)
    table = plain_table("link", "seconds", "share")
    total = sum(page.links.values()) or 1.0
    for name, seconds in page.links.items():
        table.add_row(name.replace("_", " "), f"{seconds:7.2f}", f"{seconds / total:5.0%}")
    if page.broken_link is not None:
        table.add_row(page.broken_link.replace("_", " "), "  never", "")
    console.print(table, width=WIDTH)
    for message in page.messages:
        what = "page" if message.firing else "resolved"
        console.print(Text.assemble((f"{what:<10}", "dim"), message.text), width=WIDTH)
    if page.died is not None:
        console.print(Text(page.died, style="yellow"), width=WIDTH)
    console.print()


def show_diagnosis(console: Console, result: Result) -> None:
    """Print a diagnosis by itself."""
    _show_result(console, result)
    diagnosis = result.diagnosis
    if diagnosis.job.state is not None:
        console.print(_job(diagnosis), style="dim", width=WIDTH)
        console.print()
    if result.table is None and len(diagnosis.ranks.states) > 1:
        console.print(_states(diagnosis.ranks.states), width=WIDTH)
        console.print()
    for label, lines in (
        ("chain", list(diagnosis.chain[:8])),
        ("evidence", [_citation(c) for c in diagnosis.evidence[:6]]),
        ("ruled out", [f"{r.kind.value}: {r.because}" for r in diagnosis.ruled_out[:3]]),
        ("missing", list(diagnosis.missing_evidence[:4])),
        ("do", [f"{r.side}: {r.do}" for r in diagnosis.recommendations[:3]]),
        ("next", list(diagnosis.next_steps[:3])),
        ("runbook", [diagnosis.runbook] if diagnosis.runbook else []),
    ):
        _show_list(console, label, lines)


def _job(diagnosis: Diagnosis) -> str:
    """The job in a line: what it is, how large, what it does now, how far it came."""
    job, ranks = diagnosis.job, diagnosis.ranks
    size = f"{ranks.expected} ranks" if ranks.expected else "ranks not stated"
    nodes = f" on {job.nodes} node{'s' if job.nodes > 1 else ''}" if job.nodes else ""
    parts = [f"{job.framework or 'job'}, {size}{nodes}", job.state or "state unknown"]
    if job.last_step is not None:
        parts.append(f"last step {job.last_step}")
    if job.resumed_from:
        parts.append(f"resumed from {job.resumed_from}")
    if ranks.missing and ranks.expected:
        parts.append(f"nothing of rank {ranks.missing}")
    return "; ".join(parts)


def _states(states: Sequence[RankState]) -> Table:
    """How ranks stood, the outliers first."""
    shown = plain_table()
    for name in ("ranks", "group", "enqueued", "completed", "timed out", "watchdog", "ended", "last step"):
        shown.add_column(name, justify="left" if name in ("ranks", "group", "ended", "watchdog") else "right")
    for state in states[:MAX_STATES]:
        numbers = [state.enqueued, state.completed, state.timed_out]
        shown.add_row(
            state.ranks,
            state.group or "",
            *("" if n is None else str(n) for n in numbers),
            "" if state.watchdog == "none" else state.watchdog,
            state.exit or "",
            "" if state.last_step is None else str(state.last_step),
        )
    if len(states) > MAX_STATES:
        shown.add_row(f"{len(states) - MAX_STATES} more", *([""] * 7))
    return shown


def show_records(console: Console, records: RankRecords) -> None:
    """Print one rank's recorded calls, oldest first."""
    table = plain_table()
    for name in ("record", "group", "seq"):
        table.add_column(name, justify="right" if name != "group" else "left", no_wrap=True)
    for name in ("call", "state", "made by"):
        table.add_column(name, overflow="fold")
    for record in records.records:
        peer = f" with rank {record.peer}" if record.peer is not None else ""
        style = "" if record.state == "done" else "bold"
        call = f"{short_call(record.call)}{peer}"
        site = record.call.site or ""
        table.add_row(
            str(record.record), record.group, str(record.seq), call, record.state, site, style=style
        )
    console.print(f"rank {records.rank}: {len(records.records)} calls in {records.file}", width=WIDTH)
    console.print(table)


def show_arrivals(console: Console, flight: FlightResult) -> None:
    """Print for each group how often each rank entered last, and by how much; the latest first."""
    seen = arrivals(flight.evidence, same_clock=True)
    if not seen:
        console.print("no group with twenty common collectives of three members and more", width=WIDTH)
    for group in seen:
        label = flight.evidence.groups[group.group].label
        ranks = format_ranks(group.members)
        console.print(
            f"{label}, ranks {ranks}: {group.collectives} collectives ({group.clocks})", width=WIDTH
        )
        last, margins = group.last(), group.margins_s()
        table = plain_table()
        for name in ("rank", "times last", "by, median ms", "late, median ms"):
            table.add_column(name, justify="right")
        rows = []
        for index, rank in enumerate(group.members):
            mine = margins[last == index]
            by = float(np.median(mine)) * 1e3 if len(mine) else 0.0
            rows.append((len(mine), rank, by, float(np.median(group.late_s[index])) * 1e3))
        for times, rank, by, late in sorted(rows, reverse=True)[:MAX_ARRIVALS]:
            table.add_row(str(rank), str(times), f"{by:.2f}", f"{late:.2f}")
        console.print(table)


def _show_result(console: Console, result: Result) -> None:
    console.print(_sentence(result.diagnosis), width=WIDTH)
    console.print()
    if result.table is not None:
        console.print(_break(result.table), width=WIDTH)
        console.print()
    if result.diagnosis.kind is not Kind.HEALTHY:
        stacks = _stacks(result)
        if stacks is not None:
            console.print(stacks, width=WIDTH)
            console.print()


def _sentence(diagnosis: Diagnosis) -> Text:
    text = Text(diagnosis.summary, style="bold")
    text.append(f"\n{diagnosis.kind.value}", style="cyan")
    if diagnosis.culprits:
        text.append(f"  culprit: rank {format_ranks(diagnosis.culprits)}")
    elif diagnosis.suspects:
        one = len(diagnosis.suspects) == 1
        text.append(f"  {'suspect: rank' if one else 'suspects: ranks'} {format_ranks(diagnosis.suspects)}")
    text.append(f"  ({diagnosis.confidence.value})")
    where = diagnosis.where
    if where.stuck_seq is not None and where.stuck_seq != where.seq:
        text.append(f"  parted at seq {where.seq}, stuck at seq {where.stuck_seq}")
    if where.step is not None:
        text.append(f"  in step {where.step}")
    return text


def _break(table: BreakTable) -> Table:
    shown = plain_table()
    shown.add_column(table.group, justify="right", no_wrap=True, min_width=len(table.group))
    for i, ranks in enumerate(table.columns):
        label = "rank" if ranks.isdigit() else "ranks"
        style = "red" if i else ""
        shown.add_column(f"{label} {ranks}", style=style, overflow="ellipsis", no_wrap=True)
    for row in table.rows:
        cells: list[RenderableType] = [f"{'> ' if row.marked else ''}{row.seq}"]
        cells += [f"{cell.state:<5} {cell.call}" for cell in row.cells]
        shown.add_row(*cells, style="bold" if row.marked else "")
    return shown


def _stacks(result: Result) -> RenderableType | None:
    """The accused's stack beside a peer's: recorded at the call, or sampled where nothing was recorded."""
    diagnosis = result.diagnosis
    recorded = diagnosis.where.frames
    accused = (diagnosis.culprits or diagnosis.suspects)[:1]
    peers = [r for r in (*recorded, *result.stacks) if r not in diagnosis.culprits]
    chosen = [*accused, *[r for r in peers if r not in accused][:1]]
    columns = [(rank, frames) for rank in chosen if (frames := recorded.get(rank) or result.stacks.get(rank))]
    if not columns:
        return None
    table = plain_table(gap=3)
    for rank, frames in columns:
        sampled = recorded.get(rank, frames) == result.stacks.get(rank)
        how = "sampled" if sampled else "at the call"
        table.add_column(f"stack of rank {rank} ({how})", overflow="ellipsis", no_wrap=True)
    for line in range(max(min(MAX_FRAMES, len(frames)) for _, frames in columns)):
        table.add_row(*(f[line] if line < len(f) else "" for _, f in columns))
    return table


def _show_checks(console: Console, verdict: Verdict) -> None:
    marks = {True: ("ok", "green"), False: ("NO", "bold red"), None: ("-", "dim")}
    line = Text()
    for name, check in verdict.checks.items():
        if check.ok is None and name in ASKED_FOR:
            continue
        mark, style = marks[check.ok]
        line.append(f"{name.replace('_', ' ')} ").append(mark, style=style).append("  ")
    console.print(line, width=WIDTH)
    for name, check in verdict.checks.items():
        if check.ok is False:
            text = f"  {name}: expected {check.expected}, found {check.found}"
            console.print(text, style="red", width=WIDTH)


def _timings(seconds: Seconds) -> str:
    parts = (
        ("launch", seconds.launch),
        ("fault to notice", seconds.fault_to_notice),
        ("notice to diagnosis", seconds.notice_to_diagnosis),
        ("total", seconds.total),
    )
    return "   ".join(f"{name} {value:.2f} s" for name, value in parts if value is not None)


def _show_list(console: Console, label: str, lines: Iterable[str]) -> None:
    shown = list(lines)
    if not shown:
        return
    body = Group(*(Text(line) for line in shown))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", width=9)
    table.add_column()
    table.add_row(label, body)
    console.print(table, width=WIDTH)


def _citation(cited: Citation) -> str:
    if cited.file is None:
        return cited.says
    record = f" record {cited.record}" if cited.record is not None else ""
    line = f":{cited.line}" if cited.line is not None else ""
    says = cited.says if len(cited.says) <= MAX_CITED else f"{cited.says[: MAX_CITED - 3]}..."
    return f"{cited.file}{line}{record}  {says}"


def _short(path: Path) -> Path:
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path
