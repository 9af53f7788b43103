"""What a machine has: for people, and for whoever compares two runs of the check."""

import platform
import subprocess
import sys
from dataclasses import dataclass

from harness.doctor import examine
from harness.observe.gpus import gpu_state
from harness.observe.machine import look

_LIMIT_S = 60.0
_ASK_TORCH = "import torch; print('.'.join(str(p) for p in torch.cuda.nccl.version()))"
_ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


@dataclass(frozen=True)
class Facts:
    """No host names. `nccl`: as torch itself loads it; `doctor`: what is not as it should be."""

    gpus: int
    cards: tuple[str, ...]
    driver: str | None
    torch: str | None
    cuda: str | None
    nccl: str | None
    python: str
    cores: int
    doctor: tuple[str, ...]


def gather_facts() -> Facts:
    """Ask the driver, torch and the doctor. What does not answer is None."""
    machine = look()
    lines = examine()
    return Facts(
        gpus=machine.gpus,
        cards=tuple(gpu.get("name", "?") for gpu in gpu_state().gpus),
        driver=_first_line(_ASK_DRIVER) if machine.gpus else None,
        torch=machine.torch,
        cuda=machine.cuda,
        nccl=_first_line((sys.executable, "-c", _ASK_TORCH)) if machine.cuda else None,
        python=platform.python_version(),
        cores=_cores(),
        doctor=tuple(f"{x.status} {x.check}: {x.found}" for x in lines if x.status != "OK"),
    )


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def _first_line(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None
