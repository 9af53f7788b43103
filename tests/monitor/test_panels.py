"""The dashboard's names, and the page from records alone, looked at in a browser."""

import base64
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from harness.cli.monitor import command
from harness.model.errors import PrerequisiteError
from harness.monitor.binaries import Binaries
from harness.monitor.heatmap import page, read_maps
from harness.monitor.names import DCGM, EMITTED
from harness.monitor.panels import MARKS, ROWS, dashboard, panels
from harness.monitor.rules import series

from .made import append, rank_file, record

CORPUS = Path(__file__).parents[1] / "corpus"
_NAME = re.compile(r"\b(?:train_\w+|DCGM_\w+)\b|(?:\bjob|\btrain):[\w:]+")


def test_panels_use_only_names_that_somebody_emits() -> None:
    """The exporter, dcgm-exporter, or a series that the rules record: no panel stays empty."""
    queries = [expr for panel in panels() for expr, _ in panel.queries] + [mark.expr for mark in MARKS]
    used = {name for query in queries for name in _NAME.findall(query)}

    assert used <= set(EMITTED) | DCGM | {s.name for s in series()}
    assert {panel.row for panel in panels()} == set(ROWS)


def test_every_query_is_one(binaries: Binaries, tmp_path: Path) -> None:
    """Prometheus' own parser takes every query, with the dashboard's variable filled in."""
    rules = [
        {"record": f"panel:{i}", "expr": expr.replace("$job", "run42")}
        for i, expr in enumerate([e for p in panels() for e, _ in p.queries] + [m.expr for m in MARKS])
    ]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        (binaries.promtool, "check", "rules", tmp_path / "panels.yml"), capture_output=True, text=True
    )

    assert done.returncode == 0 and f"{len(rules)} rules found" in done.stdout, done.stderr


def test_the_dashboard_has_its_rows_and_panels() -> None:
    """Four rows, every panel once in its row, none over another."""
    document = json.loads(dashboard())
    cells = set()
    for panel in document["panels"]:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & cells and max(x for x, _ in mine) < 24
        cells |= mine

    assert [p["title"] for p in document["panels"] if p["type"] == "row"] == list(ROWS)
    assert len({p["id"] for p in document["panels"]}) == len(ROWS) + len(panels())
    assert len(document["annotations"]["list"]) == len(MARKS)


def test_a_slow_rank_shows(tmp_path: Path) -> None:
    """In a recorded run, the rank that all wait for is the one that waits least."""
    with tarfile.open(CORPUS / "slow_backward.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    maps = read_maps([tmp_path / "bundle" / "signals"])
    waits = next(m for m in maps.maps if m.title == "waiting for the other ranks")

    assert (len(maps.ranks), maps.first_step, maps.last_step) == (8, 0, 79)
    assert int(np.nanmean(waits.values[:, 40:], axis=1).argmin()) == 5


def test_long_runs_are_put_together_and_the_worst_shows(tmp_path: Path) -> None:
    """Of two thousand steps one slow one is still there; the last of two times counts."""
    took = {1500: 9.0}
    lines = b"".join(record(step, step_time_s=took.get(step, 1.0)) for step in range(2000))
    append(rank_file(tmp_path, 0), b"garbage\n" + lines)
    append(rank_file(tmp_path, 0, attempt=1), record(0, step_time_s=3.0))
    maps = read_maps([tmp_path])
    (step_time,) = (m for m in maps.maps if m.title.startswith("step time"))

    assert maps.per_column == 3 and step_time.values.shape == (1, 667)
    assert step_time.values[0, 500] == 9.0 and step_time.values[0, 0] == 3.0
    assert maps.attempts == 2 and any("no step records" in line for line in maps.complaints)


def test_the_page_is_one_file_and_escapes_what_it_shows(tmp_path: Path) -> None:
    """Pictures are inside; nothing is fetched; names are no markup."""
    append(rank_file(tmp_path, 0), record(0) + record(1))
    text = page("<script>", read_maps([tmp_path]))
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', text)

    assert "<script>" not in text and "http" not in text
    assert pictures and all(base64.b64decode(p).startswith(b"\x89PNG") for p in pictures)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: apt-get install chromium")
def test_a_browser_shows_it(tmp_path: Path) -> None:
    """Headless, as a person would open it: the page renders, and it is not blank."""
    from matplotlib.image import imread

    append(rank_file(tmp_path, 0), b"".join(record(s, step_time_s=1 + s % 5) for s in range(50)))
    (tmp_path / "heat.html").write_text(page("run", read_maps([tmp_path])))
    subprocess.run(
        (
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *(f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={tmp_path / 'shot.png'}"),
            *("--window-size=1000,700", (tmp_path / "heat.html").as_uri()),
        ),
        check=True,
        capture_output=True,
        timeout=60,
    )
    shot = imread(tmp_path / "shot.png")

    assert len(np.unique(shot[100:, :, :3].reshape(-1, 3), axis=0)) > 20


def test_the_command_says_what_it_needs(tmp_path: Path) -> None:
    """Nothing to write, no records: each is one message with what to do."""
    nothing = CliRunner().invoke(command, ["panels"])
    with pytest.raises(PrerequisiteError, match="no step records here"):
        read_maps([tmp_path])

    assert "--out FILE (Grafana)" in str(nothing.exception)
