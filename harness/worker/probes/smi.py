"""Clocks and throttle reasons of all cards, as nvidia-smi says them right now."""

import shutil
import subprocess
from contextlib import suppress

SMI_LIMIT_S = 10.0


def clocks_now() -> tuple[list[float], set[str]]:
    """SM clocks to their maximum, and active throttle reasons, of all cards right now."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return [], set()
    names = (
        "hw_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "sw_thermal_slowdown",
        "sw_power_cap",
    )
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons"):
        fields = ",".join(("clocks.sm", "clocks.max.sm", *(f"{prefix}.{name}" for name in names)))
        command = (smi, f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_LIMIT_S)
            if done.returncode == 0:
                return parse_smi(done.stdout, names)
    return [], set()


def parse_smi(text: str, names: tuple[str, ...]) -> tuple[list[float], set[str]]:
    """Rows of nvidia-smi: clock, maximum, then Active or Not Active for each reason."""
    ratios, active = [], set()
    for i, row in enumerate(text.strip().splitlines()):
        cells = [cell.strip() for cell in row.split(",")]
        with suppress(ValueError, ZeroDivisionError, IndexError):
            ratios.append(float(cells[0]) / float(cells[1]))
        active |= {
            f"{name} on card {i}" for name, cell in zip(names, cells[2:], strict=False) if cell == "Active"
        }
    return ratios, active
