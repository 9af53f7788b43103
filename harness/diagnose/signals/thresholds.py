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
        values: dict[str, float] = {}
        for setting in settings:
            name, _, text = setting.partition("=")
            kind = _KINDS.get(name)
            if kind is None:
                raise UsageError(f"--threshold {setting}: no such threshold; there are: {', '.join(_KINDS)}")
            try:
                value = kind(text)
            except ValueError:
                value = math.nan
            if not (math.isfinite(value) and value > 0):
                wanted = "a whole number" if kind is int else "a number"
                raise UsageError(f"--threshold {setting}: {wanted} above 0 is needed")
            values[name] = value
        return dataclasses.replace(self, **values)  # type: ignore[arg-type]


DEFAULTS = Thresholds()
_KINDS = {field.name: type(getattr(DEFAULTS, field.name)) for field in dataclasses.fields(Thresholds)}
