"""What a Prometheus and an Alertmanager need, as files: rules, their unit tests, configurations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness.bundle.codec import write_atomically
from harness.diagnose.signals.thresholds import ALERTS, AlertThresholds
from harness.model.errors import PrerequisiteError
from harness.monitor.rule_cases import unit_tests
from harness.monitor.rules import (
    PAGE,
    PAGE_FILE,
    RECORD,
    RECORD_FILE,
    SITUATION,
    Rule,
    duration,
    rules,
    series,
)

RUNBOOK = "docs/runbook.md"

Yaml = None | bool | int | float | str | Sequence["Yaml"] | Mapping[str, "Yaml"]


@dataclass(frozen=True)
class Notifying:
    """Whom Alertmanager tells, and how it puts things together; seconds.

    `pager`, `notes`: webhook URLs for pages and for the rest. A notification waits `group_wait_s` for more
    of the same job; what joins later comes after `group_interval_s`.
    """

    pager: str = "http://127.0.0.1:9095/page"
    notes: str | None = None
    group_wait_s: float = 5.0
    group_interval_s: float = 300.0
    repeat_s: float = 4 * 3600.0


@dataclass(frozen=True)
class Scraping:
    """What Prometheus scrapes and whom it tells. `alertmanagers`: URLs."""

    exporters: tuple[str, ...] = ("127.0.0.1:9400",)
    dcgm: tuple[str, ...] = ()
    alertmanagers: tuple[str, ...] = ("http://127.0.0.1:9093",)
    interval_s: float = 5.0
    labels: Mapping[str, str] | None = None
    """Added to every alert that leaves this Prometheus."""


def rules_document(severity: str, limits: AlertThresholds, runbook: str = RUNBOOK, mark: str = "") -> Yaml:
    """One rule file. The page file also has the recording rules, before the alerts that need them.

    `mark` stands before every summary: a drill's pages must not pass for real ones.
    """
    alerts = [_alert(rule, runbook, mark) for rule in rules(limits) if rule.severity == severity]
    records = [{"record": s.name, "expr": s.expr} for s in series(limits)] if severity == PAGE else []
    return {"groups": [{"name": f"drill-{severity}", "rules": [*records, *alerts]}]}


def _alert(rule: Rule, runbook: str, mark: str) -> Mapping[str, Yaml]:
    said: dict[str, Yaml] = {"alert": rule.name, "expr": rule.expr}
    if rule.wait_s:
        said["for"] = duration(rule.wait_s)
    said["labels"] = {"severity": rule.severity}
    said["annotations"] = {
        "summary": f"{mark}{rule.summary}",
        "situation": rule.situation or SITUATION,
        "runbook": f"{runbook}#{rule.section}",
    }
    return said


def prometheus_document(scraping: Scraping) -> Yaml:
    """prometheus.yml. `honor_labels`: the exporter's own label `job` is the training job."""
    seconds = duration(scraping.interval_s)
    targets: list[Yaml] = [
        {
            "job_name": "training",
            "honor_labels": True,
            "static_configs": [{"targets": [*scraping.exporters]}],
        },
        {"job_name": "dcgm", "static_configs": [{"targets": [*scraping.dcgm]}]},
    ]
    return {
        "global": {
            "scrape_interval": seconds,
            "scrape_timeout": seconds,
            "evaluation_interval": seconds,
            "external_labels": dict(scraping.labels or {}),
        },
        "rule_files": [PAGE_FILE, RECORD_FILE],
        "alerting": {"alertmanagers": [_alertmanager(url) for url in scraping.alertmanagers]},
        "scrape_configs": targets if scraping.dcgm else targets[:1],
    }


def _alertmanager(url: str) -> Mapping[str, Yaml]:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return {
        "scheme": scheme,
        "path_prefix": f"/{path}".rstrip("/") or "/",
        "static_configs": [{"targets": [host]}],
    }


INHIBITIONS = (
    ("TrainingRestarting", "TrainingStepStalled", ("job",)),
    ("TrainingRestartLoop", "TrainingStepStalled", ("job",)),
    ("TrainingEscalated", "TrainingStepStalled", ("job",)),
    ("GpuXidError", "GpuClockLow", ("host",)),
)
"""While the first is active, the second says nothing new about the same job or host.

`TrainingRestarting` is the job's own state (restarting, resuming), which lasts twenty minutes at most; then
the state is another, and the stall speaks again.
"""


def alertmanager_document(notifying: Notifying) -> Yaml:
    """alertmanager.yml: one notification a job; pages go to the pager, the rest to the notes or nowhere."""
    waits: dict[str, Yaml] = {
        "group_by": ["job"],
        "group_wait": duration(notifying.group_wait_s),
        "group_interval": duration(notifying.group_interval_s),
        "repeat_interval": duration(notifying.repeat_s),
    }
    page = {"receiver": "pager", "matchers": [f'severity="{PAGE}"'], **waits}
    slow = {**waits, "receiver": "notes", "group_wait": "30s", "matchers": [f'severity="{RECORD}"']}
    return {
        "route": {"receiver": "notes", "group_by": ["job"], "routes": [page, slow]},
        "receivers": [
            {"name": "pager", "webhook_configs": [_webhook(notifying.pager)]},
            {"name": "notes", "webhook_configs": [_webhook(notifying.notes)] if notifying.notes else []},
        ],
        "inhibit_rules": [
            {
                "source_matchers": [f'alertname="{source}"'],
                "target_matchers": [f'alertname="{target}"'],
                "equal": [*equal],
            }
            for source, target, equal in INHIBITIONS
        ],
    }


def _webhook(url: str) -> Mapping[str, Yaml]:
    return {"url": url, "send_resolved": True}


def write_files(
    out: Path,
    limits: AlertThresholds = ALERTS,
    scraping: Scraping | None = None,
    notifying: Notifying | None = None,
    runbook: str = RUNBOOK,
    mark: str = "",
) -> tuple[Path, ...]:
    """Write all files into `out`, made if need be; returns them.

    Raises:
        PrerequisiteError: the folder cannot be written.
    """
    documents = {
        PAGE_FILE: rules_document(PAGE, limits, runbook, mark),
        RECORD_FILE: rules_document(RECORD, limits, runbook, mark),
        "prometheus.yml": prometheus_document(scraping or Scraping()),
        "alertmanager.yml": alertmanager_document(notifying or Notifying()),
        "drill-rules.test.yml": unit_tests(limits, runbook, mark),
    }
    written = []
    for name, document in documents.items():
        text = yaml.safe_dump(document, sort_keys=False, width=110)
        try:
            write_atomically(out / name, f"# Written by `drill monitor rules`.\n{text}".encode())
        except OSError as error:
            raise PrerequisiteError(
                f"{out / name}: {error.strerror}: give another folder with --out"
            ) from None
        written.append(out / name)
    return tuple(written)
