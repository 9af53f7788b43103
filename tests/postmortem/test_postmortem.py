"""A postmortem from a bundle: every part that can be measured, and an honest unknown for the rest."""

import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.bundle.layout import Layout
from harness.cli.postmortem import command
from harness.model.errors import PrerequisiteError
from harness.postmortem.moments import incident_of
from tests.monitor.made import append, rank_file, record

CORPUS = Path(__file__).parents[1] / "corpus"
T0 = 1_800_000_000.0


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two ranks; a save every 10 steps; rank 1 dies after step 25, all start again from step 20.

    Step 25 ended at T0 + 25. Page at + 50, exit at + 55, dumps asked at + 56, new start at + 95, joined at
    + 105, first step begins at + 135 and step 25 is reached at + 141.
    """
    signals = tmp_path / "signals"
    for rank in (0, 1):
        for step in range(26):
            saved = {"ckpt_duration_s": 2.0} if step % 10 == 9 else {}
            line = record(step, rank, t=T0 + step, step_time_s=1.0, **saved)
            append(rank_file(signals, rank), line)
        for step in range(20, 30):
            line = record(step, rank, t=T0 + 136 + step - 20, step_time_s=1.0, restart_total=1)
            append(rank_file(signals, rank, 1), line)
    events = [(1, "joined"), (55.5, "noticed"), (56, "dump asked"), (105, "joined"), (150, "noticed")]
    for at, what in events:
        append(tmp_path / "events.jsonl", json.dumps({"t": T0 + at, "what": what}).encode() + b"\n")
    exits = [{"rank": 1, "pid": 1, "code": -9, "signal": "SIGKILL", "at": T0 + 55, "cleanup": False}]
    attempts = [
        {"attempt": 0, "started": T0, "pids": {"0": 2, "1": 1}, "exits": exits, "stopping": T0 + 56},
        {"attempt": 1, "started": T0 + 95, "pids": {"0": 3, "1": 4}, "exits": [], "stopping": None},
    ]
    (tmp_path / "launcher.json").write_text(
        json.dumps({"attempts": attempts, "outcome": "finished", "error": None})
    )
    (tmp_path / "page.json").write_text(json.dumps({"messages": [{"at": T0 + 50, "firing": True}]}))
    return tmp_path


def test_each_part_is_measured(run: Path) -> None:
    """From the last step to where the job had been; saves and their interval too."""
    incident = incident_of(Layout(run))
    split = incident.split

    assert incident.step == 25 and incident.failures == 1
    assert (split.detect, split.restart, split.load, split.recompute) == (25, 10, 30, 6)
    assert split.dump is None and split.decide is None
    assert (incident.saves.save_s, incident.saves.interval_s) == (2.0, 10.0)


def test_with_dumps_every_part_is_known(run: Path) -> None:
    """The parts add up to the whole."""
    import os

    dump = Layout(run).dump(0, 0)
    dump.parent.mkdir(parents=True)
    dump.write_bytes(b"")
    os.utime(dump, (T0 + 60, T0 + 60))
    split = incident_of(Layout(run)).split

    assert (split.dump, split.decide, split.unknown) == (10, 35, ())
    assert split.known_s == 141 - 25


def test_a_run_that_was_not_restarted_says_so(tmp_path: Path) -> None:
    """A recorded hang: how it was detected is known, recovery is not, and nothing is made up."""
    with tarfile.open(CORPUS / "size.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    done = CliRunner().invoke(command, [str(tmp_path / "bundle"), "--gpus", "1024"], catch_exceptions=False)

    assert done.exit_code == 0
    assert "collective_size_mismatch after step 2, rank 5" in done.output
    assert "at least" in done.output and "how long this took: recompute" in done.output
    assert "docs/runbook.md#step-stalled" in done.output


def test_the_page_has_what_a_meeting_needs(run: Path, tmp_path: Path) -> None:
    """Impact in hours and money, a timeline in UTC with sources, the split, Young, unknowns."""
    out = tmp_path / "postmortem.md"
    args = (str(run), "--gpus", "1024", "--price", "3", "--mtbf", "3h", "--save", "45s", "--interval", "24m")
    done = CliRunner().invoke(command, [*args, "--out", str(out)], catch_exceptions=False)
    text = out.read_text()

    assert done.exit_code == 0
    for part in (
        "Impact",
        "Timeline (UTC)",
        "Root cause",
        "Detection and recovery",
        "What is unknown",
        "Actions",
    ):
        assert f"## {part}" in text
    assert "| 08:00:25.0 | last finished step: 25 | `signals/attempt_0` |" in text
    assert "| recompute | 6 s | 1.71 |" in text
    assert "Young's interval is 16 min" in text and "9.79%" in text
    assert "3 USD an hour each)" in text and "assumption" not in text


@pytest.mark.parametrize(
    ("pause_s", "says"), [(0, "at no time stood still"), (100, "No progress for 101 s on")]
)
def test_a_run_that_went_on_by_itself(tmp_path: Path, pause_s: int, says: str) -> None:
    """No restart, no recovery: what the gap between two steps cost, and how long until somebody knew."""
    for step in range(20):
        late = pause_s if step >= 10 else 0
        append(rank_file(tmp_path / "signals", 0), record(step, t=T0 + step + late, step_time_s=1.0))
    append(tmp_path / "page.json", json.dumps({"messages": [{"at": T0 + 9 + 95, "firing": True}]}).encode())
    ended = {"attempts": [], "outcome": "finished", "error": None}
    (tmp_path / "launcher.json").write_text(json.dumps(ended))
    done = CliRunner().invoke(command, [str(tmp_path)], catch_exceptions=False)

    assert says in done.output
    assert ("| detect | 95 s |" in done.output) == bool(pause_s)


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    """Exit code 4."""
    with pytest.raises(PrerequisiteError, match="nothing readable"):
        CliRunner().invoke(command, [str(tmp_path)], catch_exceptions=False)
