"""Every metric name in one place: what the exporter emits, and what rules and panels take from elsewhere."""

import re
from dataclasses import dataclass

from harness.diagnose.signals.columns import FIELDS

_COUNTED = frozenset(
    (
        *("ckpt_failed_total", "restart_total", "num_alloc_retries", "num_ooms"),
        *("num_device_alloc", "num_device_free", "stdout_bytes"),
    )
)
"""Fields that only grow within a process."""

_HELP = {
    "loss": "Loss of the newest step",
    "step_time_s": "Seconds that the newest step took",
    "restart_total": "Restarts of the job, the number of its attempt",
    "ckpt_failed_total": "Saves that failed since the process began",
}

_CLEAN = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True)
class MetricName:
    """One metric. `kind` is gauge or counter; `by_rank`: labels job, rank, host, gpu, else job and host."""

    name: str
    kind: str
    help: str
    by_rank: bool = True


def field_metric(field: str) -> MetricName:
    """The metric of a field of step records. Prometheus wants counters to end in ``_total``."""
    counted = field in _COUNTED
    suffix = "_total" if counted and not field.endswith("_total") else ""
    name = f"train_{_CLEAN.sub('_', field)}{suffix}"
    text = _HELP.get(field, f"Newest {field} of a rank's step records")
    return MetricName(name, "counter" if counted else "gauge", text)


STEP = MetricName("train_step", "gauge", "Number of the newest finished step")
LAST_STEP = MetricName(
    "train_last_step_completed_timestamp_seconds", "gauge", "Unix time at which the newest step was finished"
)
LOSS_FINITE = MetricName("train_loss_is_finite", "gauge", "1 if the newest loss is a finite number, else 0")
LOSS_NOT_FINITE = MetricName("train_loss_not_finite_total", "counter", "Steps whose loss was NaN or infinite")
UP = MetricName("train_up", "gauge", "1 if the rank's file is there and can be read, else 0")
SPAN = MetricName("train_span_seconds", "gauge", "Seconds of the newest torchtitan span of each name")
POSITION_ERRORS = MetricName(
    "train_data_position_errors_total",
    "counter",
    "Steps at which the position in the data went back, or is not what it was before a restart",
)
SLOW_SAVES = MetricName(
    "train_ckpt_slow_saves", "gauge", "How many of the last saves in a row took far longer than the median"
)
STEP_TIME_P50 = MetricName(
    "train_step_time_seconds_p50",
    "gauge",
    "Median seconds of a step over the last twenty of each rank that this exporter follows",
    by_rank=False,
)
STATE = MetricName("train_state", "gauge", "1 for the state that the job is in, else 0", by_rank=False)
TASK_GONE = MetricName(
    "train_task_gone",
    "gauge",
    "1 if the job's processes ended before their time and nothing came back",
    by_rank=False,
)
XID_AT = MetricName(
    "train_gpu_xid_timestamp_seconds",
    "gauge",
    "Unix time of the newest kernel log line with this XID on this card",
    by_rank=False,
)
XID_TOTAL = MetricName(
    "train_gpu_xid_total", "counter", "Kernel log lines with this XID on this card", by_rank=False
)
READ_AT = MetricName(
    "train_exporter_read_timestamp_seconds", "gauge", "Unix time of the last look at the files", by_rank=False
)
BAD_LINES = MetricName("train_exporter_bad_lines_total", "counter", "Lines that are no record", by_rank=False)
CLOCK_JUMPS = MetricName(
    "train_exporter_clock_jumps_total",
    "counter",
    "Records whose own time was far from the time at which they arrived",
    by_rank=False,
)
REFUSED = MetricName(
    "train_exporter_refused_total",
    "counter",
    "Label values and fields that were refused because there were too many",
    by_rank=False,
)
PROBLEMS = MetricName(
    "train_exporter_unreadable", "gauge", "Files and folders that cannot be read now", False
)

FIXED = (
    *(STEP, LAST_STEP, LOSS_FINITE, LOSS_NOT_FINITE, UP, SPAN, POSITION_ERRORS, SLOW_SAVES, STEP_TIME_P50),
    *(STATE, TASK_GONE, XID_AT, XID_TOTAL, READ_AT, BAD_LINES, CLOCK_JUMPS, REFUSED, PROBLEMS),
)

EMITTED = {
    **{metric.name: metric for metric in map(field_metric, FIELDS)},
    **{metric.name: metric for metric in FIXED},
}
"""All names that the exporter can emit for the contract's fields; a job's own fields come on top."""

DCGM = frozenset(
    (
        *("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
        *("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_PENDING", "DCGM_FI_DEV_SM_CLOCK"),
        *("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        *("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"),
        *("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_PROF_NVLINK_TX_BYTES"),
    )
)
"""Names of NVIDIA's dcgm-exporter that rules and panels use. Source: its etc/dcp-metrics-included.csv; the
XID count is its own (`DCGM_EXP_`), with a label `xid`: the XID gauge holds a code and cannot be counted."""
