"""docs/runbook.md is true: every command in it runs, and every link and name in it leads somewhere."""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.diagnose.runbook import section_of
from harness.model.kinds import Kind
from harness.monitor.binaries import Binaries
from harness.monitor.names import DCGM, EMITTED
from harness.monitor.panels import panel_titles
from harness.monitor.rules import rules, series
from harness.monitor.stack import Stack

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
ANCHORS = set(re.findall(r'<a id="([\w-]+)">', PAGE))


def commands() -> list[str]:
    """Every command of the page, in order, each once."""
    blocks = re.findall(r"^ *```console\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(line[2:] for line in lines if line.startswith("$ ")))


@pytest.fixture
def incident(tmp_path: Path, binaries: Binaries, tag: str) -> Iterator[tuple[Path, Stack]]:
    """A recorded run with a slow rank, with a Prometheus and an Alertmanager that watch it."""
    with tarfile.open(ROOT / "tests" / "corpus" / "slow_backward.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    run = tmp_path / "bundle"
    stack = Stack(binaries, run, tmp_path / "page", "bundle", 60.0)
    try:
        stack.start()
        yield run, stack
    finally:
        stack.stop()


def test_every_command_can_be_pasted(
    incident: tuple[Path, Stack], binaries: Binaries, tmp_path: Path
) -> None:
    """In one shell, from top to bottom, against a recorded run and local services."""
    run, stack = incident
    rank = subprocess.Popen(
        (sys.executable, "-c", "import time; time.sleep(600)", "runbook_rank.py"),
        env={**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"},
    )
    script = "\n".join(f"{command} || echo FAILED '{i}'" for i, command in enumerate(commands()))
    here = f"{Path(sys.executable).parent}:{binaries.promtool.parent}:/usr/bin:/bin"
    known = {
        "RUN": "bundle",
        "PROM": stack.prometheus.url,
        "AM": stack.alertmanager.url,
        "MATCH": "runbook_rank",
    }
    try:
        done = subprocess.run(
            ("bash", "-c", script),
            cwd=tmp_path,
            env={**os.environ, **known, "PATH": here},
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        rank.kill()
        rank.wait()
    failed = [commands()[int(number)] for number in re.findall(r"^FAILED (\d+)$", done.stdout, re.MULTILINE)]

    assert not failed, (failed, done.stdout, done.stderr)
    assert "straggler" in done.stdout and "# " in done.stdout
    assert (run / "heat.html").exists() and (tmp_path / "bundle-now").is_dir()


def test_every_symptom_has_its_four_parts() -> None:
    """Check, act, escalate, alerts and panels: of the five symptoms of a job."""
    sections = dict(re.findall(r'<a id="([\w-]+)"></a>\n(.*?)(?=\n## |\Z)', PAGE, re.DOTALL))

    for name in ("step-stalled", "mfu-degraded", "loss-not-finite", "checkpoint-failed", "gpu-xid"):
        for part in ("Alerts: ", "Panels: ", "Within five minutes:", "Act:", "Escalate: "):
            assert part in sections[name], (name, part)


def test_pages_and_diagnoses_lead_to_a_section() -> None:
    """Every rule's and every kind's section is there, and no section is orphaned."""
    by_rules = {rule.section for rule in rules()}
    by_kinds = {found.partition("#")[2] for kind in Kind if (found := section_of(kind))}

    assert by_rules == ANCHORS and by_kinds <= ANCHORS
    assert section_of(Kind.HEALTHY) is None


def test_the_page_uses_only_names_that_exist() -> None:
    """Metrics that the exporter or dcgm-exporter emits, alerts that are rules, panels of the dashboard."""
    metrics = set(re.findall(r"\b(?:train_\w+|DCGM_\w+)\b|\b(?:job|train):[\w:]+", PAGE))
    alerts = set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", PAGE))
    panels = {p for line in re.findall(r"Panels: ([^.]*)\.", PAGE) for p in re.findall(r"\*([^*]+)\*", line)}

    assert metrics <= set(EMITTED) | DCGM | {s.name for s in series()}
    assert alerts <= {rule.name for rule in rules()}
    assert panels and panels <= set(panel_titles())
