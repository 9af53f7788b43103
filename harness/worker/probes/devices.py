"""What a probe measures on: the cards of this machine, or its cores where there is none."""

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.worker.environment import REQUIRED_GPUS
from harness.worker.probes.options import Unable


@dataclass(frozen=True)
class Device:
    """One card, or one core. `model` is the same for all that should be alike."""

    name: str
    model: str
    torch: torch.device
    core: int | None = None

    def enter(self) -> None:
        """Work here from now on: select the card, or bind this thread to the core."""
        if self.core is not None:
            os.sched_setaffinity(0, {self.core})
            torch.set_num_threads(1)
        else:
            torch.cuda.set_device(self.torch)

    def clock(self) -> float:
        """Seconds: of a core only those that it gave to this thread, whoever else runs there."""
        return time.thread_time() if self.core is not None else time.perf_counter()

    def synchronize(self) -> None:
        """Wait until all work is done."""
        if self.core is None:
            torch.cuda.synchronize(self.torch)


def devices(at_most_cores: int = 4) -> list[Device]:
    """All cards; without any, up to so many cores that this process may use."""
    if torch.cuda.is_available():
        return [
            Device(f"cuda:{i}", torch.cuda.get_device_name(i), torch.device("cuda", i))
            for i in range(torch.cuda.device_count())
        ]
    model = cpu_model()
    cores = sorted(os.sched_getaffinity(0))[:at_most_cores]
    return [Device(f"core {core}", model, torch.device("cpu"), core) for core in cores]


def require_gpus() -> None:
    """Nothing is measured on cores where the checklist means cards: a driver may be there, and CUDA not.

    Raises:
        Unable: torch sees fewer cards than the item needs.
    """
    needed = int(os.environ.get(REQUIRED_GPUS, "0"))
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if seen < needed:
        raise Unable(
            f"there are cards, and torch {torch.__version__} can use {seen}, of {needed} that are needed: "
            'python -c "import torch; torch.cuda.init()" says why'
        )


def cpu_model() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
