"""Several runs for people: a line each as they finish, a table and the misses at the end."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.text import Text

from harness.catalog.selection import RunTitle
from harness.experiment import RunResult
from harness.many import INTERNAL, RunOutcome
from harness.model.diagnosis import Diagnosis
from harness.model.ranks import format_ranks
from harness.report.terminal import WIDTH, plain_table

_WORDS = {0: "PASS", 1: "FAIL", 3: "INCONCLUSIVE", INTERNAL: "ERROR", 130: "INTERRUPTED"}
_CANNOT_RUN = "CANNOT RUN"
_STYLES = {"PASS": "bold green", "FAIL": "bold red", "ERROR": "bold red"}
_COUNTED = {"FAIL": "failed", "INCONCLUSIVE": "inconclusive", _CANNOT_RUN: "could not run"}
_COUNTED |= {"ERROR": "ended in error", "INTERRUPTED": "interrupted"}


def word_of(outcome: RunOutcome) -> str:
    """PASS, FAIL, INCONCLUSIVE, CANNOT RUN, ERROR or INTERRUPTED."""
    return _WORDS.get(outcome.exit_code, _CANNOT_RUN)


def result_line(outcome: RunOutcome, widest: int) -> Text:
    """One run in one line; `widest` is the longest title's length. Only a miss may pass 100 columns."""
    word = word_of(outcome)
    line = Text.assemble((f"{word:<12}", _style(word)), f"  {outcome.title!s:<{widest}}  ")
    if outcome.run is None:
        assert outcome.error is not None
        why = outcome.error.message.partition("\n")[0]
        line.append(f"cannot run: {why}" if word == _CANNOT_RUN else why)
    else:
        kind = outcome.run.result.diagnosis.kind.value
        line.append(f"{kind:<26}  {outcome.seconds:5.1f} s")
    if not outcome.passed and outcome.bundle is not None:
        line.append(f"  {short_path(outcome.bundle)}")
    return line


def show_summary(console: Console, outcomes: Sequence[RunOutcome], seconds: float, exit_code: int) -> None:
    """Print how often each drill and mode passed, every miss with its bundle, and the exit code."""
    table = plain_table("drill", "mode", "broken", "passed", "missed")
    table.add_column("median s", justify="right")
    for drill, mode, runs in _rows(outcomes):
        ranks = format_ranks(rank for run in runs for rank in run.title.culprits)
        took = [run.seconds for run in runs if run.run is not None]
        table.add_row(
            drill,
            mode,
            ranks or "-",
            f"{sum(run.passed for run in runs)} of {len(runs)}",
            _missed(runs),
            f"{median(took):.1f}" if took else "-",
        )
    console.print()
    console.print(table, width=WIDTH)
    for outcome in outcomes:
        if not outcome.passed and outcome.error is None:
            console.print()
            _show_miss(console, outcome)
    passed = sum(outcome.passed for outcome in outcomes)
    rest = f", {_missed(outcomes)}" if passed < len(outcomes) else ""
    total = f"{passed} of {len(outcomes)} passed{rest}; {seconds:.1f} s, exit code {exit_code}"
    console.print()
    console.print(total, width=WIDTH, style="bold")


def misses(run: RunResult) -> list[str]:
    """The failing checks, a line each, then what was diagnosed."""
    checks = run.verdict.checks.items()
    lines = [f"{n}: expected {c.expected}, found {c.found}" for n, c in checks if c.ok is False]
    return [*lines, diagnosed(run.result.diagnosis)]


def diagnosed(diagnosis: Diagnosis) -> str:
    """A diagnosis as one line."""
    return f"diagnosed: {diagnosis.kind.value} ({diagnosis.confidence.value}): {diagnosis.summary}"


def short_path(path: Path) -> str:
    """A path as one would type it from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _show_miss(console: Console, outcome: RunOutcome) -> None:
    assert outcome.run is not None
    word = word_of(outcome)
    head = Text.assemble((word, _style(word)), f"  {outcome.title}")
    console.print(head, width=WIDTH)
    for line in misses(outcome.run):
        console.print(Text(f"  {line}"), width=WIDTH)
    console.print(f"  drill diagnose {short_path(outcome.run.bundle)}", width=WIDTH, overflow="fold")


def _rows(outcomes: Sequence[RunOutcome]) -> Iterator[tuple[str, str, list[RunOutcome]]]:
    def key(outcome: RunOutcome) -> tuple[str, str]:
        return outcome.title.drill, outcome.title.mode

    for (drill, mode), runs in groupby(outcomes, key):
        yield drill, mode, list(runs)


def _style(word: str) -> str:
    return _STYLES.get(word, "bold yellow")


def _missed(outcomes: Sequence[RunOutcome]) -> str:
    words = [word_of(outcome) for outcome in outcomes if not outcome.passed]
    return ", ".join(f"{words.count(word)} {what}" for word, what in _COUNTED.items() if word in words)


def widest(titles: Sequence[RunTitle]) -> int:
    """The length of the longest title."""
    return max((len(str(title)) for title in titles), default=0)
