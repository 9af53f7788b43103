"""The names under which tools print one and the same counter, old and new.

Ours, with their units: temperature_c, memory_temperature_c, power_w, power_limit_w, sm_clock_mhz,
sm_clock_max_mhz, gpu_util, tensor_active (shares of 1), fb_used_mib, fb_total_mib, xid (the last code),
ecc_sbe, ecc_dbe, remap_correctable, remap_uncorrectable, remap_pending, remap_failed, nvlink_errors,
nvlink_bytes, pcie_replay, pcie_gen, pcie_gen_max, pcie_width, pcie_width_max, thermal_violation,
power_violation.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

COUNTERS = frozenset(
    (
        *("ecc_sbe", "ecc_dbe", "remap_correctable", "remap_uncorrectable", "nvlink_errors", "pcie_replay"),
        *("thermal_violation", "power_violation"),
    )
)
"""What only grows until the driver is loaded anew; the rest are states."""

SUMMED = frozenset(("ecc_sbe", "ecc_dbe", "nvlink_errors", "nvlink_bytes"))
"""Printed in parts (memories, links, directions), which are added."""

_SMI: tuple[tuple[str, str], ...] = (
    ("temperature_c", r"temperature/(?:gpu_current_temp|gpu_temp)"),
    ("memory_temperature_c", r"temperature/(?:memory_current_temp|memory_temp)"),
    ("power_w", r"(?:gpu_)?power_readings/(?:instant\w*_|average_)?power_draw"),
    ("power_limit_w", r"(?:gpu_)?power_readings/(?:current_|enforced_)?power_limit"),
    ("sm_clock_max_mhz", r"max_clocks/sm(?:_clock)?"),
    ("sm_clock_mhz", r"clocks/sm(?:_clock)?"),
    ("gpu_util", r"utilization/gpu(?:_util)?"),
    ("fb_used_mib", r"fb_memory_usage/used"),
    ("fb_total_mib", r"fb_memory_usage/total"),
    ("ecc_sbe", r"volatile/(?:[sd]ram_correctable\w*|single_bit/total)"),
    ("ecc_dbe", r"volatile/(?:[sd]ram_uncorrectable\w*|double_bit/total)"),
    ("remap_correctable", r"remapped_rows/(?:correctable_error|remapped_row_corr)"),
    ("remap_uncorrectable", r"remapped_rows/(?:uncorrectable_error|remapped_row_unc)"),
    ("remap_pending", r"remapped_rows/(?:remapped_row_)?pending|retired_pages/pending\w*"),
    ("remap_failed", r"remapped_rows/(?:remapping_failure_occurred|remapped_row_failure)"),
    ("pcie_replay", r"pci/(?:replays_since_reset|replay_counter)"),
    ("pcie_gen_max", r"(?:pcie_generation|pcie_gen)/(?:max|max_link_gen)"),
    ("pcie_gen", r"(?:pcie_generation|pcie_gen)/(?:current|current_link_gen)"),
    ("pcie_width_max", r"link_widths?/(?:max|max_link_width)"),
    ("pcie_width", r"link_widths?/(?:current|current_link_width)"),
)
_SMI_TABLE = tuple((name, re.compile(rf"(?:^|/)(?:{form})$")) for name, form in _SMI)

_REASONS = re.compile(r"(?:^|/)clocks_(?:event|throttle)_reasons/(?:.*/)?(\w+)$")
_REASON_PREFIX = re.compile(r"^clocks_(?:event|throttle)_reason_")

HARMLESS = frozenset(("idle", "gpu_idle", "applications_clocks_setting", "display_clock_setting", "active"))
"""Reasons under which no load is slower than it was told to be."""

MASK = {
    0x1: "idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of DCGM's and NVML's field. Source: nvml.h, nvmlClocksEventReasons (nvmlClocksThrottleReasons)."""

_UNTOLD = ("n/a", "[n/a]", "not supported", "[not supported]", "unknown error", "")
_DENIED = "insufficient permissions"
_LOST = ("gpu is lost", "err!", "gpu requires reset")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


@dataclass
class Told:
    """The fields of one card, collected one after another."""

    values: dict[str, float] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    throttle: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    lost: str | None = None

    def take(self, path: str, text: str, line: int) -> None:
        """One of nvidia-smi's fields, by its path of lower-case words (``clocks/sm``)."""
        low = text.strip().lower()
        if _DENIED in low:
            self.denied.add(path.rsplit("/", 1)[-1])
            return
        if any(word in low for word in _LOST):
            self.lost = self.lost or text.strip()
            return
        if reason := _REASONS.search(path):
            if low == "active":
                self.reason(_REASON_PREFIX.sub("", reason[1]), line)
            return
        name = next((name for name, form in _SMI_TABLE if form.search(path)), None)
        if name is not None and low not in _UNTOLD:
            self.add(name, _number(low), line)

    def add(self, name: str, value: float | None, line: int) -> None:
        """A value under our own name. The first of several counts, but for those that are summed."""
        if value is None:
            return
        if name in self.values and name not in SUMMED:
            return
        self.values[name] = self.values.get(name, 0.0) + value
        self.lines.setdefault(name, line)

    def reason(self, name: str, line: int) -> None:
        """A reason that holds clocks down."""
        if name not in HARMLESS:
            self.throttle.add(name)
            self.lines.setdefault("throttle", line)


def _number(low: str) -> float | None:
    if low in ("yes", "no"):
        return float(low == "yes")
    found = _NUMBER.match(low)
    return float(found[0]) if found else None


def reasons_of(mask: int) -> Iterable[str]:
    """The reasons in a bit mask."""
    return (name for bit, name in MASK.items() if mask & bit)


DCGM = {
    "DCGM_FI_DEV_GPU_TEMP": "temperature_c",
    "DCGM_FI_DEV_MEMORY_TEMP": "memory_temperature_c",
    "DCGM_FI_DEV_POWER_USAGE": "power_w",
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": "power_w",
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock_mhz",
    "DCGM_FI_DEV_MAX_SM_CLOCK": "sm_clock_max_mhz",
    "DCGM_FI_DEV_GPU_UTIL": "gpu_util",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active",
    "DCGM_FI_DEV_FB_USED": "fb_used_mib",
    "DCGM_FI_DEV_FB_TOTAL": "fb_total_mib",
    "DCGM_FI_DEV_XID_ERRORS": "xid",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "ecc_sbe",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_dbe",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "remap_pending",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "remap_failed",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "remap_correctable",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "remap_uncorrectable",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "nvlink_errors",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "nvlink_errors",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "nvlink_errors",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "nvlink_errors",
    "DCGM_FI_PROF_NVLINK_TX_BYTES": "nvlink_bytes",
    "DCGM_FI_PROF_NVLINK_RX_BYTES": "nvlink_bytes",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "pcie_replay",
    "DCGM_FI_DEV_PCIE_LINK_GEN": "pcie_gen",
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": "pcie_gen_max",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": "pcie_width",
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": "pcie_width_max",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "thermal_violation",
    "DCGM_FI_DEV_POWER_VIOLATION": "power_violation",
}
DCGM_REASONS = frozenset(("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"))
"""The old name and the new one, since DCGM 3.3."""
