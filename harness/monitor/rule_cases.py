"""For each alert a case in which it must fire and one, as near as can be, in which it must not.

Written as promtool's unit tests, so that whoever edits the rules has them too. Series are in promtool's own
notation: ``0+10x5`` counts 0, 10, ... 50; one value an interval.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.diagnose.signals.thresholds import AlertThresholds
from harness.monitor.rules import PAGE_FILE, RECORD_FILE, Rule, rules

INTERVAL_S = 240
"""As wide as Prometheus bears: promtool evaluates every rule at every interval of every case."""

LONG_S = 3600
"""Every case is looked at after an hour; a rule that waits has had its time."""

_STEPS = LONG_S // INTERVAL_S
_RANK = 'job="run42", rank="{rank}", host="node1", gpu="{rank}"'


@dataclass(frozen=True)
class Case:
    """Series by name and labels, and the labels with which the alert fires, None where it must not."""

    what: str
    series: Mapping[str, str]
    fires: Mapping[str, str] | None = None
    more: tuple[Mapping[str, str], ...] = field(default=())


def unit_tests(limits: AlertThresholds, runbook: str, mark: str) -> Mapping[str, object]:
    """A file for `promtool test rules`, beside the rule files."""
    known = {rule.name: rule for rule in rules(limits)}
    tests = [_test(known[name], case) for name, both in cases(limits).items() for case in both]
    return {
        "rule_files": [PAGE_FILE, RECORD_FILE],
        "evaluation_interval": f"{INTERVAL_S}s",
        "tests": [*tests, _message(limits, runbook, mark)],
    }


def _test(rule: Rule, case: Case) -> Mapping[str, object]:
    base = {"alertname": rule.name, "alertstate": "firing", "severity": rule.severity}
    expected = [] if case.fires is None else [case.fires, *case.more]
    return {
        "name": f"{rule.name}: {case.what}",
        "interval": f"{INTERVAL_S}s",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{rule.name}", alertstate="firing"}}',
                "eval_time": f"{LONG_S}s",
                "exp_samples": [{"labels": _labels({**base, **said}), "value": 1} for said in expected],
            }
        ],
    }


def _labels(said: Mapping[str, str]) -> str:
    return f"ALERTS{{{_matchers(said)}}}"


def _matchers(labels: Mapping[str, str]) -> str:
    return ", ".join(f'{name}="{value}"' for name, value in labels.items())


def always(value: float) -> str:
    """The same value all the time."""
    return f"{value:g}+0x{_STEPS}"


def _lately(value: float) -> str:
    """0 until a few minutes ago."""
    return f"0+0x{_STEPS - 1} {value:g}"


def _since(age_s: float) -> str:
    """A timestamp that was kept up until `age_s` before the case is looked at."""
    kept = int((LONG_S - age_s) // INTERVAL_S)
    rest = _STEPS - kept
    return f"0+{INTERVAL_S}x{kept}" + (f" {kept * INTERVAL_S}+0x{rest - 1}" if rest else "")


def _steps(age_s: float, rank: int = 0, p50: float = 1.0, **more: str) -> dict[str, str]:
    """One rank whose last step is `age_s` old."""
    place = _RANK.format(rank=rank)
    return {
        f"train_last_step_completed_timestamp_seconds{{{place}}}": _since(age_s),
        f"train_step{{{place}}}": always(51300),
        f"train_restart_total{{{place}}}": more.get("restarts", always(1)),
        'train_step_time_seconds_p50{job="run42", host="node1"}': always(p50),
    }


def _of_rank(metric: str, values: str, rank: int = 0) -> dict[str, str]:
    return {f"{metric}{{{_RANK.format(rank=rank)}}}": values}


def _state(state: str) -> dict[str, str]:
    return {f'train_state{{job="run42", host="node1", state="{state}"}}': always(1)}


def _dcgm(metric: str, values: str, **labels: str) -> dict[str, str]:
    said = _matchers({"Hostname": "node1", "gpu": "5", **labels})
    return {f"{metric}{{{said}}}": values}


_SECOND_NODE = {'train_step_time_seconds_p50{job="run42", host="node2"}': always(1)}
_JOB = {"job": "run42"}
_NODE = {"job": "run42", "host": "node1"}
_CARD = {"job": "run42", "host": "node1", "gpu": "5"}
_TRAINS_THERE = {f"train_up{{{_RANK.format(rank=5)}}}": always(1)}


def cases(limits: AlertThresholds) -> Mapping[str, tuple[Case, ...]]:
    """Alert -> its cases."""
    return {
        **dict(_stalls(limits)),
        **dict(_values(limits)),
        **dict(_ratios(limits)),
        **dict(_hardware(limits)),
    }


def _stalls(limits: AlertThresholds) -> Iterator[tuple[str, tuple[Case, ...]]]:
    late, slow = limits.hang_s + 60, 2 * limits.hang_s
    moving, stuck = _steps(0, rank=0), _steps(late, rank=1)
    left = _steps(late, rank=1, restarts=always(0))
    at = "train_last_step_completed_timestamp_seconds"
    edge = int(_STEPS - 5)
    moved_on = f"0+{INTERVAL_S}x{edge} {edge * INTERVAL_S}+0x3 {LONG_S}"
    moving_again = {key: moved_on if key.startswith(at) else values for key, values in moving.items()}
    yield (
        "TrainingStepStalled",
        (
            Case(
                "it moves, but not as far as before the restart", {**moving_again, **_state("resuming")}, _JOB
            ),
            Case("it moves again", {**moving_again, **_state("running")}),
            Case("every rank stands still", stuck, _JOB),
            Case("one stuck rank among moving ones", {**moving, **stuck}, _JOB),
            Case("a median of each of two nodes", {**stuck, **_SECOND_NODE}, _JOB),
            Case("no median yet", {k: v for k, v in stuck.items() if "p50" not in k}, _JOB),
            Case("it moves", moving),
            Case("its steps take that long", _steps(late, p50=slow)),
            Case("a rank that the restart left out", {**moving, **left}),
            Case("it has ended", {**stuck, **_state("stopped")}),
        ),
    )
    read = 'train_exporter_read_timestamp_seconds{job="run42", host="node1"}'
    here = 'train_exporter_read_timestamp_seconds{job="run42", host="node2"}'
    dies = f"0+{INTERVAL_S}x{_STEPS // 2} stale"
    yield (
        "TrainingMetricsAbsent",
        (
            Case("the exporter of one node died", {read: dies, here: _since(0)}, _NODE),
            Case("it answers but reads no more", {read: _since(limits.silent_s + 2 * INTERVAL_S)}, _NODE),
            Case("it reads", {read: _since(0)}),
            Case("it died with a job that had ended", {read: dies, **_state("stopped")}),
        ),
    )
    for name, state in (("TrainingEscalated", "escalated"), ("TrainingRestarting", "resuming")):
        labels = {**_JOB}
        yield name, (Case(f"it is {state}", _state(state), labels), Case("it runs", _state("running")))
    gone = 'train_task_gone{job="run42", host="node1"}'
    yield "TrainingTaskGone", (Case("gone", {gone: always(1)}, _JOB), Case("there", {gone: always(0)}))
    recent = int(limits.restart_window_s // INTERVAL_S) - 2
    before = _STEPS - recent

    def restarts(count: int, first: int = 0) -> str:
        return f"{first}+0x{before} {first + count}+0x{recent - 1}"

    yield (
        "TrainingRestartLoop",
        (
            Case("three within the window", _of_rank("train_restart_total", restarts(limits.restarts)), _JOB),
            Case("two", _of_rank("train_restart_total", restarts(limits.restarts - 1))),
            Case("many, long ago", _of_rank("train_restart_total", always(9))),
        ),
    )


def _values(limits: AlertThresholds) -> Iterator[tuple[str, tuple[Case, ...]]]:
    once = _lately(1)
    yield (
        "TrainingLossNotFinite",
        (
            Case("on one rank of two", {**_finite(1, 0), **_finite(0, 1)}, _JOB),
            Case("between two scrapes", _of_rank("train_loss_not_finite_total", once), _JOB),
            Case("finite", _finite(1, 0)),
            Case("once, long ago", _of_rank("train_loss_not_finite_total", always(1))),
        ),
    )
    for name, metric in (
        ("CheckpointSaveFailed", "train_ckpt_failed_total"),
        ("DataPositionMoved", "train_data_position_errors_total"),
    ):
        yield (
            name,
            (Case("the first", _of_rank(metric, once), _JOB), Case("long ago", _of_rank(metric, always(1)))),
        )
    row = limits.slow_saves
    yield (
        "CheckpointSlow",
        (
            Case("in a row", _of_rank("train_ckpt_slow_saves", always(row)), _JOB),
            Case("fewer", _of_rank("train_ckpt_slow_saves", always(row - 1))),
        ),
    )
    yield (
        "CheckpointSlowOnce",
        (
            Case("one", _of_rank("train_ckpt_slow_saves", always(1)), _JOB),
            Case("none", _of_rank("train_ckpt_slow_saves", always(0))),
        ),
    )
    yield (
        "RankFileMissing",
        (Case("one", _of_rank("train_up", always(0)), _JOB), Case("there", _of_rank("train_up", always(1)))),
    )
    for name, metric, what in (
        ("ExporterRefuses", "train_exporter_refused_total", ', what="ranks"'),
        ("ClockJumped", "train_exporter_clock_jumps_total", ""),
    ):
        series = f'{metric}{{job="run42", host="node1"{what}}}'
        yield name, (Case("some", {series: once}, _NODE), Case("none lately", {series: always(4)}))


def _finite(value: int, rank: int) -> dict[str, str]:
    return _of_rank("train_loss_is_finite", always(value), rank)


def _ratios(limits: AlertThresholds) -> Iterator[tuple[str, tuple[Case, ...]]]:
    def mfu(share: float) -> dict[str, str]:
        return {**_of_rank("train_mfu", always(0.4 * share)), **_of_rank("train_mfu_baseline", always(0.4))}

    for name, loss in (("TrainingMfuDegraded", limits.mfu_paged), ("MfuSlipped", limits.mfu_noted)):
        yield (
            name,
            (Case("below", mfu(1 - loss - 0.01), _JOB), Case("just above", mfu(1 - loss + 0.01))),
        )
    edge = limits.effective_fraction
    low = f"{edge - 0.05:g}"
    yield (
        "EffectiveTrainingTimeLow",
        (
            Case("low", _of_rank("train_effective_fraction", always(edge - 0.05)), _JOB),
            Case("enough", _of_rank("train_effective_fraction", always(edge + 0.05))),
            Case(
                "a job that has just begun",
                _of_rank("train_effective_fraction", f"_x{_STEPS - 10} {low}+0x9"),
            ),
        ),
    )

    def step_time(factor: float) -> dict[str, str]:
        return {**_steps(0, p50=1.0), **_of_rank("train_step_time_s", always(factor), 5)}

    rank = {"job": "run42", "rank": "5", "host": "node1", "gpu": "5"}
    factor = limits.straggler_factor
    yield (
        "RankStepTimeOutlier",
        (
            Case("late", step_time(factor + 0.1), rank),
            Case("a median of each of two nodes", {**step_time(factor + 0.1), **_SECOND_NODE}, rank),
            Case("in time", step_time(factor - 0.1)),
        ),
    )

    def waits(share: float) -> dict[str, str]:
        return {**_of_rank("train_data_wait_s", always(share)), **_of_rank("train_step_time_s", always(1))}

    yield (
        "DataLoadingWait",
        (Case("long", waits(limits.data_wait + 0.01), _JOB), Case("short", waits(limits.data_wait - 0.01))),
    )

    def memory(retries: str) -> dict[str, str]:
        return {
            **_of_rank("train_mem_inactive_split", f"1000+10x{_STEPS}"),
            **_of_rank("train_num_alloc_retries_total", retries),
        }

    yield (
        "MemoryFragmentation",
        (Case("with retries", memory(f"0+1x{_STEPS}"), _JOB), Case("without", memory(always(3)))),
    )


def _hardware(limits: AlertThresholds) -> Iterator[tuple[str, tuple[Case, ...]]]:
    lately = _lately(79)
    kernel = 'train_gpu_xid_timestamp_seconds{job="run42", host="node1", gpu="5", pci="0000:3b:00", xid="79"}'
    counted = _dcgm("DCGM_EXP_XID_ERRORS_COUNT", always(1), xid="79")
    xid = {**_CARD, "xid": "79"}
    gauge = "DCGM_FI_DEV_XID_ERRORS"
    two_jobs = {'train_up{job="run43", rank="0", host="node1", gpu="6"}': always(1)}
    yield (
        "GpuXidError",
        (
            Case("in the kernel log", {kernel: always(LONG_S - 60)}, xid),
            Case("dcgm's code, the first", {**_dcgm(gauge, lately), **_TRAINS_THERE}, xid),
            Case(
                "dcgm's code, on a card that was new",
                {**_dcgm(gauge, f"_x{_STEPS} 79"), **_TRAINS_THERE},
                xid,
            ),
            Case("dcgm's count", {**counted, **_TRAINS_THERE}, xid),
            Case("two jobs on the node", {**counted, **_TRAINS_THERE, **two_jobs}, xid),
            Case("long ago", {kernel: always(LONG_S - limits.xid_window_s - 60)}),
            Case("dcgm's code, held for ever", {**_dcgm(gauge, always(79)), **_TRAINS_THERE}),
            Case("none", {**_dcgm(gauge, always(0)), **_TRAINS_THERE}),
        ),
    )
    errors = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    remap = "DCGM_FI_DEV_ROW_REMAP_PENDING"
    yield (
        "GpuEccDbe",
        (
            Case("double-bit", {**_dcgm(errors, _lately(1)), **_TRAINS_THERE}, _CARD),
            Case("remap pending", {**_dcgm(remap, always(1)), **_TRAINS_THERE}, _CARD),
            Case("none new", {**_dcgm(errors, always(1)), **_dcgm(remap, always(0)), **_TRAINS_THERE}),
        ),
    )

    def clock(mhz: float, watts: float) -> dict[str, str]:
        return {
            **_dcgm("DCGM_FI_DEV_SM_CLOCK", always(mhz)),
            **_dcgm("DCGM_FI_DEV_POWER_USAGE", always(watts)),
        }

    card = {"host": "node1", "gpu": "5"}
    yield (
        "GpuClockLow",
        (
            Case("under load", clock(limits.clock_mhz - 100, limits.clock_watts + 100), card),
            Case("idle", clock(limits.clock_mhz - 100, limits.clock_watts - 100)),
        ),
    )
    single, link = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"
    yield (
        "GpuEccSbeGrowing",
        (Case("many", _dcgm(single, f"0+50x{_STEPS}"), card), Case("few", _dcgm(single, always(500)))),
    )
    yield (
        "NvlinkErrors",
        (Case("some", _dcgm(link, _lately(1)), card), Case("none new", _dcgm(link, always(9)))),
    )


def _message(limits: AlertThresholds, runbook: str, mark: str) -> Mapping[str, object]:
    """What the page of a stall after an XID says: the one message at three in the morning."""
    late = limits.hang_s + 60
    kernel = (
        'train_gpu_xid_timestamp_seconds{job="run42", host="node037", gpu="5", pci="0000:3b:00", xid="79"}'
    )
    series = {**_steps(late), **_state("stalled"), kernel: always(LONG_S - 200)}
    rule = next(r for r in rules(limits) if r.name == "TrainingStepStalled")
    return {
        "name": "TrainingStepStalled: what the page says",
        "interval": f"{INTERVAL_S}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "alertname": rule.name,
                "eval_time": f"{LONG_S}s",
                "exp_alerts": [
                    {
                        "exp_labels": {"job": "run42", "severity": rule.severity},
                        "exp_annotations": {
                            "summary": f"{mark}run42: no step for {_humanized(late)}",
                            "situation": "at step 51300; XID 79 on node037 gpu 5; restart 1; stalled",
                            "runbook": f"{runbook}#step-stalled",
                        },
                    }
                ],
            }
        ],
    }


def _humanized(seconds: float) -> str:
    """As Prometheus' humanizeDuration writes whole seconds."""
    whole = int((seconds + INTERVAL_S - 1) // INTERVAL_S * INTERVAL_S)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m {rest}s" if hours else f"{minutes}m {rest}s" if minutes else f"{rest}s"
