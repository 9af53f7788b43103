"""The rules, with promtool and amtool."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from harness.cli.monitor import command
from harness.diagnose.signals.thresholds import ALERTS, DEFAULTS
from harness.model.errors import UsageError
from harness.monitor.binaries import Binaries
from harness.monitor.names import DCGM, EMITTED
from harness.monitor.rule_cases import cases
from harness.monitor.rule_files import INHIBITIONS, write_files
from harness.monitor.rules import SITUATION, rules, series

_NAME = re.compile(r"\b(?:train_\w+|DCGM_\w+)\b|(?:\bjob|\btrain):[\w:]+")


def said_by(*command: object) -> str:
    """What a program prints; it must succeed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_files_are_what_prometheus_and_alertmanager_take(tmp_path: Path, binaries: Binaries) -> None:
    """promtool checks rules and configuration, amtool the routes."""
    write_files(tmp_path)

    assert "SUCCESS" in said_by(binaries.promtool, "check", "rules", *tmp_path.glob("*.rules.yml"))
    assert "SUCCESS" in said_by(binaries.promtool, "check", "config", tmp_path / "prometheus.yml")
    assert "SUCCESS" in said_by(binaries.amtool, "check-config", tmp_path / "alertmanager.yml")


def test_each_rule_fires_and_does_not_where_it_must_not(tmp_path: Path, binaries: Binaries) -> None:
    """promtool's unit tests of every rule, and of the words of the page."""
    write_files(tmp_path)

    assert "SUCCESS" in said_by(binaries.promtool, "test", "rules", tmp_path / "drill-rules.test.yml")


def test_every_rule_has_both_cases() -> None:
    """One in which it fires, one in which it must not."""
    both = cases(ALERTS)

    assert set(both) == {rule.name for rule in rules()}
    assert all({case.fires is None for case in of_one} == {True, False} for of_one in both.values())


_AGE = "(time() - max by (job) (train_last_step_completed_timestamp_seconds))"
MISTAKES = {
    "max hides one stuck rank": (
        "TrainingStepStalled",
        f"{_AGE} > 3 * max by (job) (train_step_time_seconds_p50) and {_AGE} > 90",
    ),
    "a median a node breaks the join": (
        "RankStepTimeOutlier",
        "train_step_time_s > on (job) group_left () (1.2 * train_step_time_seconds_p50)",
    ),
    "increase misses the first XID": (
        "GpuXidError",
        "increase(DCGM_FI_DEV_XID_ERRORS[10m]) > 0",
    ),
    "absent() alone knows no job and no node": (
        "TrainingMetricsAbsent",
        "absent(train_exporter_read_timestamp_seconds)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_unit_tests_notice_the_usual_mistakes(mistake: str, tmp_path: Path, binaries: Binaries) -> None:
    """Rules with such a mistake in them fail their unit tests."""
    rule, wrong = MISTAKES[mistake]
    complaint = "many-to-many" if "breaks the join" in mistake else f'alertname=\\"{rule}\\"'
    write_files(tmp_path)
    for file in tmp_path.glob("*.rules.yml"):
        document = yaml.safe_load(file.read_text())
        for entry in document["groups"][0]["rules"]:
            if entry.get("alert") == rule:
                entry["expr"] = wrong
        file.write_text(yaml.safe_dump(document))
    said = tried(tmp_path, rule, binaries)

    assert said.returncode == 1 and complaint in said.stdout + said.stderr


def tried(folder: Path, rule: str, binaries: Binaries) -> "subprocess.CompletedProcess[str]":
    """promtool on the unit tests of one rule."""
    tests = yaml.safe_load((folder / "drill-rules.test.yml").read_text())
    tests["tests"] = [test for test in tests["tests"] if test["name"].startswith(rule)]
    (folder / "one.yml").write_text(yaml.safe_dump(tests))
    command = (binaries.promtool, "test", "rules", "one.yml")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_rules_use_only_names_that_somebody_emits() -> None:
    """The exporter's, dcgm-exporter's, or a series that the rules record themselves."""
    recorded = {s.name for s in series()}
    used = {
        name
        for text in (*(r.expr for r in rules()), SITUATION, *(s.expr for s in series()))
        for name in _NAME.findall(text)
    }

    assert used <= set(EMITTED) | DCGM | recorded
    assert recorded <= used


def test_inhibitions_name_rules() -> None:
    """A renamed rule must not leave a dead inhibition behind, and both sides carry the labels compared."""
    fires = {name: next(c.fires for c in of_one if c.fires) for name, of_one in cases(ALERTS).items()}
    for source, target, equal in INHIBITIONS:
        assert all(label in fires[name] for name in (source, target) for label in equal)


ROUTES = (
    ("severity=page job=run42 alertname=TrainingStepStalled", "pager"),
    ("severity=record job=run42 alertname=TrainingRestarting", "notes"),
    ("severity=critical alertname=SomebodyElses", "notes"),
)


@pytest.mark.parametrize(("labels", "receiver"), ROUTES)
def test_pages_go_to_the_pager(labels: str, receiver: str, tmp_path: Path, binaries: Binaries) -> None:
    """amtool follows the routes as Alertmanager will."""
    write_files(tmp_path)
    config = f"--config.file={tmp_path / 'alertmanager.yml'}"

    assert said_by(binaries.amtool, "config", "routes", "test", config, *labels.split()).strip() == receiver


def test_thresholds_stand_in_one_place() -> None:
    """What diagnosis and alerts share is one value, and every figure of a rule comes from there."""
    assert (ALERTS.hang_s, ALERTS.hang_steps) == (DEFAULTS.hang_s, DEFAULTS.hang_steps) == (90.0, 3.0)
    changed = ALERTS.with_values(["hang_s=45", "hang_steps=4", "restarts=5"])
    stalled = next(rule for rule in rules(changed) if rule.name == "TrainingStepStalled")

    assert "> 45 " in stalled.expr and "4 * job:" in stalled.expr and changed.restarts == 5
    with pytest.raises(UsageError, match="no such threshold; there are: hang_steps"):
        ALERTS.with_values(["hang=3"])


def test_the_command_writes_files_that_pass_their_tests(
    tmp_path: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other thresholds, other runbook: the unit tests written beside them are about those."""
    monkeypatch.chdir(tmp_path)
    args = ("rules", "--out", "out", "--threshold", "hang_s=300", "--runbook", "https://wiki/runbook")
    done = CliRunner().invoke(command, args, catch_exceptions=False)

    assert done.exit_code == 0 and "drill-page.rules.yml" in done.output
    assert "https://wiki/runbook#step-stalled" in (tmp_path / "out" / "drill-page.rules.yml").read_text()
    assert tried(tmp_path / "out", "TrainingStepStalled", binaries).returncode == 0
