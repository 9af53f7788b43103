"""The alert rules, as values: who is woken by what, and what only makes a note.

Two severities. page: without anybody's doing, the next hour keeps on losing GPU hours. record: for the
morning. Each expression keeps the label `job`, by which notifications are grouped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from harness.diagnose.signals.thresholds import ALERTS, AlertThresholds

PAGE, RECORD = "page", "record"
PAGE_FILE, RECORD_FILE = "drill-page.rules.yml", "drill-record.rules.yml"
HOUR = "1h"


@dataclass(frozen=True)
class Rule:
    """One alert. `wait_s`: how long it must hold before it fires. `section`: its anchor in the runbook."""

    name: str
    severity: str
    expr: str
    summary: str
    section: str
    wait_s: float = 0.0
    situation: str = ""
    """What else to say, where it is not `SITUATION`."""


@dataclass(frozen=True)
class Series:
    """One recording rule: what several alerts and panels need."""

    name: str
    expr: str


# What Prometheus fills in when the alert fires; `query` looks up what the alert's own labels do not say.
_JOB = "{{ $labels.job }}"
_CARD = "{{ $labels.host }} gpu {{ $labels.gpu }}"
_FOR = "{{ $value | humanizeDuration }}"
_TIMES = '{{ $value | printf "%.0f" }}'

_AT_STEP = (
    '{{ with printf "job:train_step:slowest{job=%q}" $labels.job | query }}'
    'at step {{ . | first | value | printf "%.0f" }}{{ end }}'
)
_XIDS = (
    '{{ range printf "train:gpu_xid:recent{job=%q}" $labels.job | query }}'
    "; XID {{ .Labels.xid }} on {{ .Labels.host }} gpu {{ .Labels.gpu }}{{ end }}"
)
_RESTART = (
    '{{ with printf "job:train_restart:number{job=%q} > 0" $labels.job | query }}'
    '; restart {{ . | first | value | printf "%.0f" }}{{ end }}'
    '{{ range printf "max by (state) (train_state{job=%q, state!=`running`}) == 1" $labels.job | query }}'
    "; {{ .Labels.state }}{{ end }}"
)
SITUATION = _AT_STEP + _XIDS + _RESTART
"""What a tired person wants to know beside the alert itself: step, cards, restarts, state."""


def series(limits: AlertThresholds = ALERTS) -> tuple[Series, ...]:
    """The recording rules; they stand before the alerts and are evaluated in this order."""
    newest = "train_restart_total == on (job) group_left () max by (job) (train_restart_total)"
    gauge = "DCGM_FI_DEV_XID_ERRORS"
    same = f"{gauge} == {gauge} offset {duration(limits.xid_window_s)}"
    code = f"count_values by (Hostname, gpu) ('xid', ({gauge} > 0) unless ({same}))"
    return (
        Series("job:train_restart:number", "max by (job) (train_restart_total)"),
        Series("job:train_step_time_seconds:p50", "max by (job) (train_step_time_seconds_p50)"),
        # The slowest rank of the newest start: the fastest would hide one that is stuck among moving ones.
        Series(
            "job:train_step:slowest", f"min by (job) (train_step and on (job, rank, host, gpu) ({newest}))"
        ),
        Series(
            "job:train_last_step_age:seconds",
            "time() - min by (job) (train_last_step_completed_timestamp_seconds"
            f" and on (job, rank, host, gpu) ({newest}))",
        ),
        # A code, not a count: three sources, of which each sees what the others miss. Our own reading of the
        # kernel log knows when each line came; dcgm-exporter counts by code; its gauge holds the last code.
        Series(
            "train:gpu_xid:recent",
            "max by (job, host, gpu, xid)"
            f" (train_gpu_xid_timestamp_seconds > time() - {limits.xid_window_s:g}"
            f" or {_of_its_job(_hosted('DCGM_EXP_XID_ERRORS_COUNT > 0'))}"
            f" or {_of_its_job(_hosted(code))})",
        ),
    )


def rules(limits: AlertThresholds = ALERTS) -> tuple[Rule, ...]:
    """All alerts, pages first."""
    return (*_pages(limits), *_records(limits))


def _pages(limits: AlertThresholds) -> Iterator[Rule]:
    age, p50 = "job:train_last_step_age:seconds", "job:train_step_time_seconds:p50"
    stopped = '(max by (job) (train_state{state="stopped"}) == 1)'
    restarting = (
        'max by (job) (max_over_time(train_state{state=~"restarting|resuming"}'
        f"[{duration(limits.resolve_after_s)}])) == 1"
    )
    # A stall that led to a restart is over when the restart is. Resolved before that, it would be inhibited,
    # and Alertmanager would never tell that it is over.
    still = f'{age} and on (job) ALERTS{{alertname="TrainingStepStalled", alertstate="firing"}}'
    yield Rule(
        "TrainingStepStalled",
        PAGE,
        f"({age} > {limits.hang_s:g} unless on (job) ({age} <= on (job) {limits.hang_steps:g} * {p50})"
        f" or {still} and on (job) ({restarting})) unless on (job) {stopped}",
        f"{_JOB}: no step for {_FOR}",
        "step-stalled",
    )
    yield Rule(
        "TrainingLossNotFinite",
        PAGE,
        "min by (job) (train_loss_is_finite) == 0"
        " or max by (job) (increase(train_loss_not_finite_total[10m])) > 0",
        f"{_JOB}: the loss is NaN or infinite",
        "loss-not-finite",
    )
    window = duration(limits.restart_window_s)
    yield Rule(
        "TrainingRestartLoop",
        PAGE,
        "max by (job) (train_restart_total)"
        f" - min by (job) (min_over_time(train_restart_total[{window}])) >= {limits.restarts}",
        f"{_JOB}: {_TIMES} restarts within {window}",
        "step-stalled",
    )
    yield Rule(
        "TrainingEscalated",
        PAGE,
        'max by (job) (train_state{state="escalated"}) == 1',
        f"{_JOB}: stalled again soon after a restart",
        "step-stalled",
    )
    yield Rule(
        "TrainingTaskGone",
        PAGE,
        "max by (job) (train_task_gone) == 1",
        f"{_JOB}: its processes are gone and nothing started them again",
        "step-stalled",
    )
    read = "train_exporter_read_timestamp_seconds"
    ended = f'(max by (job) (last_over_time(train_state{{state="stopped"}}[{HOUR}])) == 1)'
    yield Rule(
        "TrainingMetricsAbsent",
        PAGE,
        f"(group by (job, host) (last_over_time({read}[{HOUR}])) unless on (job, host) {read}"
        f" or time() - max by (job, host) ({read}) > {limits.silent_s:g}) unless on (job) {ended}",
        f"{_JOB}: nothing from the exporter on {{{{ $labels.host }}}}: a stall there would be silent",
        "metrics-absent",
        wait_s=limits.silent_s,
    )
    yield Rule(
        "CheckpointSaveFailed",
        PAGE,
        f"max by (job) (increase(train_ckpt_failed_total[{HOUR}])) > 0",
        f"{_JOB}: a checkpoint could not be saved",
        "checkpoint-failed",
    )
    yield Rule(
        "CheckpointSlow",
        PAGE,
        f"max by (job) (train_ckpt_slow_saves) >= {limits.slow_saves}",
        f"{_JOB}: {_TIMES} saves in a row took over {limits.slow_save:g} x the median",
        "checkpoint-failed",
    )
    yield Rule(
        "DataPositionMoved",
        PAGE,
        "max by (job) (increase(train_data_position_errors_total[10m])) > 0",
        f"{_JOB}: samples come twice, or not those that were due after the restart",
        "loss-not-finite",
    )
    yield Rule(
        "TrainingMfuDegraded",
        PAGE,
        f"avg by (job) (train_mfu) < {1 - limits.mfu_paged:g} * avg by (job) (train_mfu_baseline)",
        f'{_JOB}: MFU is {{{{ $value | printf "%.3g" }}}}, over {limits.mfu_paged:.0%} under its baseline',
        "mfu-degraded",
        wait_s=limits.mfu_for_s,
    )
    yield Rule(
        "EffectiveTrainingTimeLow",
        PAGE,
        f"avg by (job) (avg_over_time(train_effective_fraction[24h])) < {limits.effective_fraction:g}"
        f" and on (job) group by (job) (train_effective_fraction offset {HOUR})",
        f"{_JOB}: effective training time is {{{{ $value | humanizePercentage }}}} over 24 h",
        "mfu-degraded",
    )
    yield Rule(
        "GpuXidError",
        PAGE,
        "train:gpu_xid:recent",
        f"{_JOB}: XID {{{{ $labels.xid }}}} on {_CARD}",
        "gpu-xid",
        situation=_AT_STEP + _RESTART,
    )
    broken = "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[10m]) > 0 or DCGM_FI_DEV_ROW_REMAP_PENDING > 0"
    yield Rule(
        "GpuEccDbe",
        PAGE,
        f"max by (job, host, gpu) ({_of_its_job(_hosted(broken))})",
        f"{_JOB}: double-bit ECC error or pending row remap on {_CARD}",
        "gpu-xid",
    )


def _records(limits: AlertThresholds) -> Iterator[Rule]:
    p50 = "job:train_step_time_seconds:p50"
    yield Rule(
        "TrainingRestarting",
        RECORD,
        'max by (job) (train_state{state=~"restarting|resuming"}) == 1',
        f"{_JOB}: restarting",
        "step-stalled",
    )
    yield Rule(
        "RankFileMissing",
        RECORD,
        "count by (job) (train_up == 0)",
        f"{_JOB}: the files of {_TIMES} ranks cannot be read",
        "metrics-absent",
        wait_s=300,
    )
    yield Rule(
        "ExporterRefuses",
        RECORD,
        "max by (job, host) (increase(train_exporter_refused_total[10m])) > 0",
        f"{_JOB}: the exporter on {{{{ $labels.host }}}} refuses label values: there are too many",
        "metrics-absent",
    )
    yield Rule(
        "ClockJumped",
        RECORD,
        "max by (job, host) (increase(train_exporter_clock_jumps_total[10m])) > 0",
        f"{_JOB}: the clocks of ranks on {{{{ $labels.host }}}} are off by more than 30 s",
        "metrics-absent",
    )
    yield Rule(
        "RankStepTimeOutlier",
        RECORD,
        f"train_step_time_s > on (job) group_left () {limits.straggler_factor:g} * {p50}",
        f"{_JOB}: rank {{{{ $labels.rank }}}} on {_CARD} needs {_FOR} a step: a straggler?",
        "mfu-degraded",
        wait_s=limits.straggler_for_s,
    )
    yield Rule(
        "MfuSlipped",
        RECORD,
        f"avg by (job) (train_mfu) < {1 - limits.mfu_noted:g} * avg by (job) (train_mfu_baseline)",
        f'{_JOB}: MFU is {{{{ $value | printf "%.3g" }}}}, over {limits.mfu_noted:.0%} under its baseline',
        "mfu-degraded",
        wait_s=limits.mfu_for_s,
    )
    yield Rule(
        "DataLoadingWait",
        RECORD,
        f"avg by (job) (train_data_wait_s) / avg by (job) (train_step_time_s) > {limits.data_wait:g}",
        f"{_JOB}: {{{{ $value | humanizePercentage }}}} of each step is waiting for data",
        "mfu-degraded",
        wait_s=900,
    )
    yield Rule(
        "MemoryFragmentation",
        RECORD,
        "max by (job) (deriv(train_mem_inactive_split[1h])) > 0"
        " and on (job) max by (job) (increase(train_num_alloc_retries_total[1h])) > 0",
        f"{_JOB}: memory splits into pieces, and the allocator retries",
        "mfu-degraded",
    )
    yield Rule(
        "CheckpointSlowOnce",
        RECORD,
        "max by (job) (train_ckpt_slow_saves) == 1",
        f"{_JOB}: a save took over {limits.slow_save:g} x the median",
        "checkpoint-failed",
    )
    yield from _hardware_records(limits)


def _hardware_records(limits: AlertThresholds) -> Iterator[Rule]:
    slow = (
        f"DCGM_FI_DEV_SM_CLOCK < {limits.clock_mhz:g}"
        f" and on (Hostname, gpu) DCGM_FI_DEV_POWER_USAGE > {limits.clock_watts:g}"
    )
    single = f"increase(DCGM_FI_DEV_ECC_SBE_VOL_TOTAL[24h]) > {limits.single_bit_errors}"
    links = (
        "increase(DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL[1h]) > 0"
        " or increase(DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL[1h]) > 0"
    )
    for name, expr, says, wait_s in (
        ("GpuClockLow", slow, "SM clock is {{ $value }} MHz under load", 300.0),
        ("GpuEccSbeGrowing", single, '{{ $value | printf "%.0f" }} single-bit ECC errors in a day', 0.0),
        ("NvlinkErrors", links, "NVLink errors in the last hour", 0.0),
    ):
        value = f"max by (host, gpu) ({_hosted(expr)})"
        yield Rule(name, RECORD, value, f"{_CARD}: {says}", "gpu-xid", wait_s)


def _hosted(expr: str) -> str:
    """dcgm-exporter's `Hostname` as the label `host` that everything else has."""
    return f"label_replace({expr}, 'host', '$1', 'Hostname', '(.*)')"


def _of_its_job(expr: str) -> str:
    """A card's metric with the job that has ranks on this card, or on this host where no card is known.

    `topk` settles for one job where two share a card: two would be an error, and an error is silence.
    """
    return (
        f"({expr} * on (host, gpu) group_left (job)"
        ' topk by (host, gpu) (1, group by (job, host, gpu) (train_up{gpu!=""})))'
        f" or ({expr} * on (host) group_left (job)"
        ' topk by (host) (1, group by (job, host) (train_up{gpu=""})))'
    )


def duration(seconds: float) -> str:
    """Seconds as Prometheus writes them, in the largest unit that is whole."""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms"
