"""A Grafana dashboard, generated from the names and thresholds that the exporter and the rules use."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.diagnose.signals.thresholds import ALERTS, AlertThresholds
from harness.monitor.names import LAST_STEP, SLOW_SAVES, SPAN, STATE, UP, field_metric

ROWS = ("job", "ranks", "cards", "events")
_JOB, _RANK, _CARD = '{job=~"$job"}', '{job=~"$job"}', ""
_WIDTH, _HEIGHT, _ACROSS = 6, 7, 4


@dataclass(frozen=True)
class Panel:
    """One panel. `queries`: expression and legend. `lines`: thresholds, in the panel's unit."""

    row: str
    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    lines: Sequence[float] = ()
    kind: str = "timeseries"


@dataclass(frozen=True)
class Mark:
    """What is drawn over every panel when it happens."""

    name: str
    expr: str
    colour: str
    text: str = field(default="")


def panels(limits: AlertThresholds = ALERTS) -> tuple[Panel, ...]:
    """All panels, row by row."""
    return (*_of_job(limits), *_of_ranks(limits), *_of_cards(limits), *_of_events())


def panel_titles() -> tuple[str, ...]:
    """What the runbook may point to."""
    return tuple(panel.title for panel in panels())


def _field(name: str) -> str:
    """The metric of a field, of the chosen jobs."""
    return field_metric(name).name + _RANK


def _of_job(limits: AlertThresholds) -> Iterator[Panel]:
    job = "{{job}}"
    age = f"job:train_last_step_age:seconds{_JOB}"
    yield Panel("job", "step", "none", [(f"max by (job) (train_step{_JOB})", job)])
    yield Panel("job", "seconds since the last step", "s", [(age, job)], [limits.hang_s])
    loss = _field("loss")
    yield Panel(
        "job", "loss", "none", [(f"{how} by (job) ({loss})", f"{how} {job}") for how in ("avg", "min", "max")]
    )
    yield Panel("job", "grad norm", "none", [(f"avg by (job) ({_field('grad_norm')})", job)], [1.0])
    base = f"avg by (job) ({_field('mfu_baseline')})"
    yield Panel(
        "job",
        "MFU",
        "percentunit",
        [
            (f"avg by (job) ({_field('mfu')})", job),
            (f"{1 - limits.mfu_paged:g} * {base}", f"page {job}"),
            (f"{1 - limits.mfu_noted:g} * {base}", f"note {job}"),
        ],
    )
    took = _field("step_time_s")
    yield Panel(
        "job",
        "step time",
        "s",
        [(f"quantile by (job) ({q}, {took})", f"p{100 * q:.0f} {job}") for q in (0.5, 0.95)],
    )
    yield Panel(
        "job",
        "step time p95 / p50",
        "none",
        [(f"quantile by (job) (0.95, {took}) / quantile by (job) (0.5, {took})", job)],
        [limits.straggler_factor],
    )
    yield Panel("job", "tokens a second", "none", [(f"sum by (job) ({_field('tps')})", job)])
    yield Panel("job", "checkpoint seconds", "s", [(f"max by (job) ({_field('ckpt_duration_s')})", job)])
    yield Panel(
        "job",
        "failed saves",
        "none",
        [
            (f"sum by (job) (increase({_field('ckpt_failed_total')}[1h]))", f"failed {job}"),
            (f"max by (job) ({SLOW_SAVES.name}{_JOB})", f"slow in a row {job}"),
        ],
    )
    yield Panel(
        "job",
        "effective training time",
        "percentunit",
        [(f"avg by (job) (avg_over_time({_field('effective_fraction')}[24h]))", job)],
        [limits.effective_fraction],
    )
    yield Panel(
        "job", "state", "none", [(f"max by (job, state) ({STATE.name}{_JOB}) == 1", "{{job}} {{state}}")]
    )


def _of_ranks(limits: AlertThresholds) -> Iterator[Panel]:
    rank = "rank {{rank}} {{host}} {{gpu}}"
    yield Panel(
        "ranks",
        "step time by rank",
        "s",
        [(_field("step_time_s"), rank)],
        [],
        "heatmap",
    )
    yield Panel(
        "ranks",
        "slowest spans",
        "s",
        [
            (f'topk(5, {SPAN.name}{{job=~"$job", name="{name}"}})', f"{name} {rank}")
            for name in ("fwd_bwd", "optim")
        ],
    )
    memory = ("mem_allocated_peak", "mem_reserved_peak", "mem_inactive_split")
    yield Panel(
        "ranks", "memory", "bytes", [(f"max by (job) ({_field(m)})", f"{m} {{{{job}}}}") for m in memory]
    )
    retries = _field("num_alloc_retries")
    yield Panel("ranks", "allocator retries", "none", [(f"increase({retries}[1h]) > 0", rank)])
    waits = f"{_field('data_wait_s')} / {_field('step_time_s')}"
    yield Panel("ranks", "waiting for data", "percentunit", [(f"topk(5, {waits})", rank)], [limits.data_wait])
    yield Panel("ranks", "ranks that stand still", "s", [(f"topk(5, time() - {LAST_STEP.name}{_JOB})", rank)])
    yield Panel(
        "ranks",
        "files that cannot be read",
        "none",
        [(f"count by (job, host) ({UP.name}{_JOB} == 0)", "{{host}}")],
    )


def _of_cards(limits: AlertThresholds) -> Iterator[Panel]:
    card = "{{Hostname}} gpu {{gpu}}"
    yield Panel("cards", "SM clock", "none", [("DCGM_FI_DEV_SM_CLOCK", card)], [limits.clock_mhz])
    yield Panel("cards", "temperature", "celsius", [("DCGM_FI_DEV_GPU_TEMP", card)])
    yield Panel("cards", "power", "watt", [("DCGM_FI_DEV_POWER_USAGE", card)])
    yield Panel("cards", "tensor cores active", "percentunit", [("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", card)])
    errors = (
        ("train:gpu_xid:recent", "XID {{xid}} {{host}} gpu {{gpu}}"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL > 0", f"double-bit {card}"),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING > 0", f"remap pending {card}"),
        ("increase(DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL[1h]) > 0", f"NVLink {card}"),
        ("increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1h]) > 0", f"PCIe {card}"),
    )
    yield Panel("cards", "errors", "none", errors, [], "table")
    yield Panel("cards", "NVLink sent", "Bps", [("DCGM_FI_PROF_NVLINK_TX_BYTES", card)])


def _of_events() -> Iterator[Panel]:
    yield Panel("events", "restarts", "none", [(f"job:train_restart:number{_JOB}", "{{job}}")])
    alerts = 'count by (alertname, job, severity) (ALERTS{alertstate="firing"})'
    yield Panel("events", "alerts", "none", [(alerts, "{{severity}} {{alertname}} {{job}}")])


MARKS = (
    Mark("restarts", f"changes(job:train_restart:number{_JOB}[1m]) > 0", "orange", "restart of {{job}}"),
    Mark("saves", f"changes(max by (job) ({_field('ckpt_duration_s')})[1m:]) > 0", "blue", "save of {{job}}"),
    Mark("pages", 'ALERTS{alertstate="firing", severity="page"}', "red", "{{alertname}} {{job}}"),
)


def dashboard(limits: AlertThresholds = ALERTS) -> str:
    """The dashboard as JSON, to be imported; the data source is asked for."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    shown: list[object] = []
    y = 0
    for row in ROWS:
        shown.append(_grid({"type": "row", "title": row, "collapsed": False}, 0, y, 24, 1, len(shown)))
        y += 1
        mine = [panel for panel in panels(limits) if panel.row == row]
        for i, panel in enumerate(mine):
            place = i % _ACROSS * _WIDTH, y + i // _ACROSS * _HEIGHT
            shown.append(_grid(_panel(panel, source), *place, _WIDTH, _HEIGHT, len(shown)))
        y += -(-len(mine) // _ACROSS) * _HEIGHT
    document = {
        "__inputs": [
            {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}
        ],
        "title": "Training",
        "uid": "drill-training",
        "schemaVersion": 36,
        "refresh": "10s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_job_variable(source)]},
        "annotations": {"list": [_mark(mark, source) for mark in MARKS]},
        "panels": shown,
    }
    return json.dumps(document, indent=1) + "\n"


def _grid(what: dict[str, object], x: int, y: int, w: int, h: int, number: int) -> dict[str, object]:
    return {"id": number + 1, **what, "gridPos": {"x": x, "y": y, "w": w, "h": h}}


def _panel(panel: Panel, source: object) -> dict[str, object]:
    steps: list[dict[str, object]] = [{"color": "green", "value": None}]
    steps += [{"color": "red", "value": line} for line in panel.lines]
    style = {"thresholdsStyle": {"mode": "line" if panel.lines else "off"}}
    targets = [
        {
            "refId": chr(ord("A") + i),
            "expr": expr,
            "legendFormat": legend,
            "datasource": source,
            **({"format": "table", "instant": True} if panel.kind == "table" else {}),
        }
        for i, (expr, legend) in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": source,
        "targets": targets,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": style if panel.kind == "timeseries" else {},
            },
            "overrides": [],
        },
        "options": {"calculate": False} if panel.kind == "heatmap" else {},
    }


def _job_variable(source: object) -> dict[str, object]:
    return {
        "name": "job",
        "type": "query",
        "datasource": source,
        "query": f"label_values({UP.name}, job)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
    }


def _mark(mark: Mark, source: object) -> dict[str, object]:
    return {
        "name": mark.name,
        "datasource": source,
        "enable": True,
        "iconColor": mark.colour,
        "expr": mark.expr,
        "titleFormat": mark.text,
    }
