"""While several runs go on: results on one console, what runs now on the other, if it is a terminal."""

import io
from pathlib import Path

from rich.console import Console

from harness.catalog.selection import RunTitle
from harness.many import RunError, RunOutcome
from harness.report.spectators import ManyRuns
from harness.report.summary import show_summary

TITLES = [RunTitle("fr_hang", "skip", (5,)), RunTitle("fabric", "down", ())]


def outcome(title: RunTitle, code: int, bundle: Path | None = None) -> RunOutcome:
    """A run without a verdict."""
    return RunOutcome(title, None, RunError(code, "no namespaces"), bundle, 0.0)


def consoles(terminal: bool) -> tuple[Console, io.StringIO, Console, io.StringIO]:
    """Standard output that is a file, and standard error that may be a terminal."""
    out, err = io.StringIO(), io.StringIO()
    status = Console(file=err, force_terminal=terminal, width=100)
    return Console(file=out, width=100), out, status, err


def test_a_file_gets_only_results() -> None:
    """No phases and no control characters where nobody watches."""
    results, out, status, err = consoles(terminal=False)
    with ManyRuns(results, status, TITLES) as shown:
        shown.started(TITLES[0])
        shown.phase(TITLES[0], "collect", "stacks")
        shown.ended(0, outcome(TITLES[0], 130))
        shown.ended(1, outcome(TITLES[1], 4))

    assert out.getvalue() == "CANNOT RUN    fabric down           cannot run: no namespaces\n"
    assert err.getvalue() == ""


def test_a_terminal_shows_what_runs() -> None:
    """One status line with how many are done, and which are in what phase."""
    results, out, status, err = consoles(terminal=True)
    with ManyRuns(results, status, TITLES) as shown:
        shown.started(TITLES[0])
        shown.started(TITLES[1])
        shown.phase(TITLES[0], "collect", "stacks")
        shown.ended(1, outcome(TITLES[1], 4))

    assert "1 of 2 done  fr_hang skip, rank 5 (collect)" in err.getvalue()
    assert "CANNOT RUN" not in err.getvalue()
    assert out.getvalue().startswith("CANNOT RUN")


def test_the_status_is_one_line_whatever_runs() -> None:
    """Sixty-four runs at once do not fill the screen."""
    results, _, status, err = consoles(terminal=True)
    with ManyRuns(results, status, TITLES) as shown:
        for rank in range(64):
            shown.started(RunTitle("fr_hang", "skip", (rank,)))

    drawn, _, _ = err.getvalue().rpartition("\n")
    assert "…" in drawn
    assert "\n" not in drawn


def test_the_summary_fits_and_counts() -> None:
    """Nothing wider than 100 columns, and what was missed is counted by what happened."""
    out = io.StringIO()
    many = [outcome(RunTitle("a_drill_with_a_long_name", "mode", (rank,)), 4) for rank in range(64)]
    show_summary(Console(file=out, width=100), [*many, outcome(TITLES[1], 130)], 61.0, 4)

    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    assert "0-63    0 of 64  64 could not run" in out.getvalue()
    assert lines[-1] == "0 of 65 passed, 64 could not run, 1 interrupted; 61.0 s, exit code 4"
