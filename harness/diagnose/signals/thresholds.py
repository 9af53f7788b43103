"""What counts as slow, growing, late: the defaults of DIAGNOSIS (thresholds), each of which can be set."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.model.errors import UsageError


@dataclass(frozen=True)
class Thresholds:
    """Shares and factors without a unit unless the name says one.

    `window_steps`: length of the early and the present window (minutes on a real job are fifty steps here);
    `least_records`: fewer records in a window say nothing.
    """

    window_steps: int = 50
    least_records: int = 10
    straggler_factor: float = 1.2
    straggler_cost: float = 0.02
    always_late: float = 0.8
    data_wait: float = 0.05
    data_wait_growth: float = 2.0
    slower: float = 1.2
    flood_growth: float = 10.0
    flood_bytes: float = 64 * 1024
    rising_windows: float = 0.9
    leak_bytes_a_step: float = float(1 << 20)
    leak_host_share_an_hour: float = 0.01
    inactive_growth: float = 2.0
    inactive_share: float = 0.1
    flat: float = 0.1
    slow_save: float = 2.0
    exposed_wait: float = 0.02
    comm_growth: float = 1.5
    hang_steps: float = 3.0
    hang_s: float = 90.0

    def with_values(self, settings: Iterable[str]) -> "Thresholds":
        """These thresholds with some of them set, each given as ``name=value``.

        Raises:
            UsageError: there is no such threshold, or the value is no number above 0.
        """
        return dataclasses.replace(self, **_read(settings, self))  # type: ignore[arg-type]


def _read(settings: Iterable[str], known: "Thresholds | AlertThresholds") -> dict[str, float]:
    """Settings as ``name=value``, each of a threshold that `known` has."""
    kinds = {field.name: type(getattr(known, field.name)) for field in dataclasses.fields(known)}
    values: dict[str, float] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        kind = kinds.get(name)
        if kind is None:
            raise UsageError(f"--threshold {setting}: no such threshold; there are: {', '.join(kinds)}")
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            wanted = "a whole number" if kind is int else "a number"
            raise UsageError(f"--threshold {setting}: {wanted} above 0 is needed")
        values[name] = value
    return values


DEFAULTS = Thresholds()


@dataclass(frozen=True)
class AlertThresholds:
    """When somebody is woken, or a note is made: the figures of the alert rules, beside those of diagnosis.

    Shares have no unit. `pages_within_s`: how long after the stall rule's own time a page may take to arrive.
    """

    hang_steps: float = DEFAULTS.hang_steps
    hang_s: float = DEFAULTS.hang_s
    pages_within_s: float = 30.0
    straggler_factor: float = DEFAULTS.straggler_factor
    straggler_for_s: float = 600.0
    data_wait: float = DEFAULTS.data_wait
    slow_save: float = DEFAULTS.slow_save
    slow_saves: int = 2
    mfu_noted: float = 0.05
    mfu_paged: float = 0.15
    mfu_for_s: float = 1800.0
    effective_fraction: float = 0.85
    restarts: int = 3
    restart_window_s: float = 1800.0
    restart_limit_s: float = 1200.0
    """A restart that takes longer is no restart in progress any more: the stall pages again."""
    resolve_after_s: float = 15.0
    """A stall stays open until its restart has been over for so long: what is inhibited is never resolved."""
    gone_s: float = 60.0
    """So long after its ranks ended a job may come back by itself before it is gone."""
    xid_window_s: float = 600.0
    clock_mhz: float = 1500.0
    clock_watts: float = 300.0
    single_bit_errors: int = 100
    silent_s: float = 60.0
    """No scrape, or no look at the files, for so long: the stall rule itself may be blind."""

    def with_values(self, settings: Iterable[str]) -> "AlertThresholds":
        """These thresholds with some of them set, each given as ``name=value``.

        Raises:
            UsageError: there is no such threshold, or the value is no number above 0.
        """
        return dataclasses.replace(self, **_read(settings, self))  # type: ignore[arg-type]


ALERTS = AlertThresholds()
