"""The variables that ranks get, for the torch that is installed. Nothing of this machine is asked here.

What torch reads, seen in the headers and libraries of the wheels themselves (ProcessGroupNCCL.hpp,
FlightRecorder.hpp, libtorch_cuda.so):

======  ===========================  ==============================================================
torch   ring without any variable    NCCL's dump pipe is made if
======  ===========================  ==============================================================
2.10    0: the recorder is off       TORCH_NCCL_TRACE_BUFFER_SIZE > 0; the new name is not looked at
2.11    2000                         TORCH_NCCL_TRACE_BUFFER_SIZE is not 0; nor is it here
2.12    2000                         the ring is on, by either name
2.13    2000                         the ring is on, by either name
======  ===========================  ==============================================================

All of them take TORCH_FR_BUFFER_SIZE and TORCH_FR_DUMP_TEMP_FILE, and their old names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.worker.environment import COLLECTIVE_TIMEOUT, SHARE_GPU

RING = 20000
"""Entries. torchtitan's default; a large job makes a thousand calls a step."""

DUMP_WAIT_MS = 2000
COORD_CHECK_MS = 200
HEARTBEAT_S = 60
COLLECTIVE_TIMEOUT_S = 15
"""How long a collective may take where the watchdog's own timeout is waited for: eight ranks on one card
take turns, so that a step may take a second."""

DUMP_WAIT_DEFAULT_MS, COORD_CHECK_DEFAULT_MS = 15_000, 1_000
"""torch's own."""

BUFFER, BUFFER_OLD = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
OURS = (
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
    "TORCH_FR_DUMP_DYNAMIC_FILE_NAME",
)
"""What a job must leave to the harness: where dumps and pipes are. They go into the bundle."""

_OF_THE_LAUNCH = frozenset(
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
)
_PIPE_BY_OLD_NAME = (2, 12)
"""Before this torch, NCCL's dump pipe looks at the old name only."""


@dataclass(frozen=True)
class Conditions:
    """What decides the variables. `torch` is its version; `job`: the real job's own variables, which then
    count instead of a drill's; `watchdog`: the watchdog's own timeout is waited for."""

    backend: str
    torch: str | None
    shared: bool = False
    detail: bool = False
    max_restarts: int = 0
    watchdog: bool = False
    job: Mapping[str, str] | None = None


def compose(given: Conditions) -> dict[str, str]:
    """The variables for the ranks of one run, beside the paths inside the bundle.

    A drill keeps waits short. Under production fidelity (`job`) everything that torch and NCCL read is as the
    job has it, also what it leaves unset: a recorder that its own settings leave off is then found to be off.
    """
    return {
        **_launching(given),
        **(_as_in_a_drill(given) if given.job is None else _as_in_the_job(given.job)),
        **({"GLOO_SOCKET_IFNAME": "lo"} if given.backend == "gloo" else {}),
        **_watched(given),
        **({SHARE_GPU: "1"} if given.shared else {}),
        **({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if given.detail else {}),
    }


def watchdog_limit_s(env: Mapping[str, str]) -> float:
    """How long after a stall every rank's watchdog must have left its file, in this environment, seconds.

    The collective's timeout, a second for the watchdog's own round, the round in which the other ranks look
    at the store, and two tries at dumping (with stacks, then without).
    """
    wait_ms = float(env.get("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", DUMP_WAIT_DEFAULT_MS))
    check_ms = float(env.get("TORCH_NCCL_COORD_CHECK_MILSEC", COORD_CHECK_DEFAULT_MS))
    timeout_s = float(env.get(COLLECTIVE_TIMEOUT, COLLECTIVE_TIMEOUT_S))
    return timeout_s + 1.0 + 2 * check_ms / 1000 + 2 * wait_ms / 1000 + 5.0


def ring_without_asking(torch: str | None) -> int:
    """How many entries the recorder keeps where no variable says it; 0 is off."""
    version = parse_version(torch)
    return 0 if version is not None and version < (2, 11) else 2000


def parse_version(text: str | None) -> tuple[int, int] | None:
    """(2, 13) of ``2.13.0+cu130``; None where it is no version."""
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def _launching(given: Conditions) -> dict[str, str]:
    # The ranks' exits are noted and waited for by us; torch's own 30 s would only delay the end.
    env = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2"}
    if given.max_restarts:
        # torch 2.13 hands the next attempt the same store, in which gloo finds the addresses of the dead.
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    return env


def _as_in_a_drill(given: Conditions) -> dict[str, str]:
    env = _ring(given)
    if given.backend == "nccl":
        env |= {
            # torchrun would set 1, under which the watchdog tears down before dumps are written.
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_ENABLE_MONITORING": "1",
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(HEARTBEAT_S),
            "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": str(DUMP_WAIT_MS),
            "TORCH_NCCL_COORD_CHECK_MILSEC": str(COORD_CHECK_MS),
            # Only then it is recorded whether a kernel has started: a blocked stream is told from a fabric.
            "TORCH_NCCL_ENABLE_TIMING": "1",
            # What NCCL itself warns of is otherwise said to nobody.
            "NCCL_DEBUG": "WARN",
        }
    return env


def _ring(given: Conditions) -> dict[str, str]:
    version = parse_version(given.torch)
    if given.backend == "gloo":
        return {} if ring_without_asking(given.torch) else {BUFFER: str(RING)}
    names = (BUFFER, BUFFER_OLD) if version is None or version < _PIPE_BY_OLD_NAME else (BUFFER,)
    return dict.fromkeys(names, str(RING))


def _as_in_the_job(job: Mapping[str, str]) -> dict[str, str]:
    """The job's variables but for paths of dumps and what the launcher says to each rank."""
    return {k: v for k, v in job.items() if k not in OURS and k not in _OF_THE_LAUNCH}


def _watched(given: Conditions) -> dict[str, str]:
    if not given.watchdog:
        return {}
    return {
        COLLECTIVE_TIMEOUT: str(COLLECTIVE_TIMEOUT_S),
        # Half of the chain is said at this level only: the broadcast, and who writes where.
        "TORCH_CPP_LOG_LEVEL": "INFO",
    }
