"""Step records as columns: what every format of per-step records is turned into, whoever wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FIELDS = (
    *(
        "loss",
        "grad_norm",
        "param_norm",
        "lr",
        "loss_scale",
        "skipped",
        "num_zeros_in_grad",
        "max_attn_logit",
    ),
    *("consumed_samples", "step_time_s", "tps", "mfu", "data_wait_s", "compute_s", "comm_wait_s"),
    *("mem_allocated_peak", "mem_reserved_peak", "mem_inactive_split", "num_alloc_retries", "num_ooms"),
    *(
        "num_device_alloc",
        "num_device_free",
        "rss_bytes",
        "rss_shared_bytes",
        "stdout_bytes",
        "ckpt_duration_s",
        "ckpt_write_s",
    ),
    *("ckpt_failed_total", "restart_total", "effective_fraction", "mfu_baseline", "cpu_s", "preemptions"),
)
"""Numeric fields of a record (CONTRACT, signals). `digest` is the only one that is text."""


@dataclass(frozen=True)
class StepColumns:
    """The step records of one rank in one attempt, in file order. All arrays have one entry a record.

    `rank` is global. `t`: unix seconds of the step's end, NaN where not known. `line`: counts from 1.
    `values`: field -> numbers, NaN where a record lacks it; a value that was recorded as not finite (NaN or
    an infinity) is an infinity here, and the cited line says which. `digest`: text, empty where none.
    `format` names who wrote the records: drill, torchtitan, megatron, deepspeed.
    """

    rank: int
    attempt: int
    file: str
    format: str
    t: Floats
    step: Ints
    line: Ints
    values: Mapping[str, Floats] = field(default_factory=dict)
    digest: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.step)
