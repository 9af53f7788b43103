"""GPUs of this machine, without importing torch."""

import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_SMI_TIMEOUT_S = 10.0
_GPU_FIELDS = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "temperature.gpu",
    "power.draw",
    "clocks.sm",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.active",
    "remapped_rows.pending",
)
_OLD_FIELDS = 10
"""How many of them every driver knows."""


def gpu_count(root: Path = Path("/")) -> int:
    """NVIDIA devices that processes here can open; 0 without a driver.

    Inside a container the driver may list all cards of the host, and /dev holds those that were let in.
    """
    let_in = sum(1 for device in (root / "dev").glob("nvidia[0-9]*"))
    by_driver = root / "proc/driver/nvidia/gpus"
    listed = len(list(by_driver.iterdir())) if by_driver.is_dir() else 0
    return min(let_in, listed) if let_in and listed else let_in or listed


@dataclass(frozen=True)
class GpuState:
    """What nvidia-smi says, a mapping a device, and who uses which; `error` is why it says nothing."""

    gpus: tuple[Mapping[str, str], ...] = ()
    processes: Mapping[int, str] = field(default_factory=dict)
    error: str | None = None
    schema: str = "drill/gpus/1"

    def device_of(self, pid: int) -> tuple[str | None, str | None]:
        """Name and UUID of the device that a process uses."""
        uuid = self.processes.get(pid)
        return next((g.get("name") for g in self.gpus if g.get("uuid") == uuid), None), uuid


def gpu_state() -> GpuState:
    """The devices of this machine and who uses them. A driver that hangs is not waited for."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return GpuState(error="there is no nvidia-smi here")
    rows, error = _query(smi, "gpu", _GPU_FIELDS)
    if error:
        # One field that an old driver does not know fails the whole query.
        rows, error = _query(smi, "gpu", _GPU_FIELDS[:_OLD_FIELDS])
    if error:
        return GpuState(error=error)
    used, _ = _query(smi, "compute-apps", ("pid", "gpu_uuid"))
    processes = {int(row["pid"]): row["gpu_uuid"] for row in used if row["pid"].isdigit()}
    return GpuState(tuple(rows), processes)


def smi_report() -> tuple[bytes, str | None]:
    """All that nvidia-smi says of all devices, as XML, and why it says nothing."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return b"", "there is no nvidia-smi here"
    out, error = _run((smi, "-q", "-x"))
    if error is None and "<nvidia_smi_log" not in out:
        error = (out.strip().splitlines() or ["nvidia-smi printed nothing"])[-1]
    return (b"", error) if error else (out.encode(), None)


def gpu_indexes() -> dict[str, str]:
    """PCI bus and device, as ``3b:00``, to a card's index; empty where nvidia-smi says nothing."""
    found: dict[str, str] = {}
    for gpu in gpu_state().gpus:
        address, index = gpu.get("pci.bus_id"), gpu.get("index")
        if address and index is not None:
            found[":".join(address.lower().partition(".")[0].split(":")[-2:])] = index
    return found


def _query(smi: str, what: str, fields: tuple[str, ...]) -> tuple[list[dict[str, str]], str | None]:
    out, error = _run((smi, f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"))
    if error is not None:
        return [], error
    lines = [[part.strip() for part in line.split(",")] for line in out.splitlines() if line.strip()]
    return [dict(zip(fields, line, strict=False)) for line in lines if len(line) == len(fields)], None


def _run(command: tuple[str, ...]) -> tuple[str, str | None]:
    """What a command prints, and why it failed. A driver that hangs is not waited for."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        return "", f"{command[0]}: {error.strerror}"
    try:
        out, _ = process.communicate(timeout=_SMI_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            # In the kernel's hands it cannot be killed; whoever waits for it hangs too.
            process.communicate(timeout=1.0)
        return "", f"nvidia-smi took longer than {_SMI_TIMEOUT_S:g} s: the driver hangs"
    if process.returncode != 0:
        return "", (out.strip().splitlines() or [f"nvidia-smi: exit code {process.returncode}"])[-1]
    return out, None
