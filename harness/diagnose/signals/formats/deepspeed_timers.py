"""Which steps DeepSpeed's timer lines are of: they carry no step number.

An engine prints the step's own line only every ``steps_per_print`` steps, but its timers after each one: the
micro step's after each backward, the whole step's once, behind the step's line if it has one.
"""

import math
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.diagnose.signals.formats.numbers import number
from harness.diagnose.texts.lines import Line

_TIME = re.compile(r"\| (\w+): ([\d.]+)(?= \||\s*$)")


class Timed(NamedTuple):
    """The timers of one step."""

    step: int
    t: float
    line: int
    values: dict[str, float]


@dataclass
class TimerLines:
    """Timer lines of one rank since the last step line, until it is known how many steps went by."""

    step: int | None = None
    _whole: list[tuple[float, int, dict[str, float]]] = field(default_factory=list)
    _micro: list[tuple[float, int, dict[str, float]]] = field(default_factory=list)
    _text: str = ""
    _every_step: bool = False
    _one_micro: bool = False

    def feed(self, line: Line, text: str, t: float) -> None:
        """A line of timers; one that is said twice counts once."""
        if text == self._text:
            return
        self._text = text
        pairs = _TIME.findall(text)
        times = {name: value for name, digits in pairs if (value := number(digits)) is not None}
        if not line.whole and pairs:
            # The file ends inside the line: its last number may be cut.
            times.pop(pairs[-1][0], None)
        if "fwd" in times:
            self._whole.append((t, line.number, _values(times, "")))
        elif "fwd_microstep" in times:
            self._micro.append((t, line.number, _values(times, "_microstep")))

    def take(self, step: int | None) -> list[Timed]:
        """The timers up to a step's line (None: the end of the file), as far as their steps are certain."""
        begun, whole, micro = self.step, self._whole, self._micro
        self.step, self._whole, self._micro, self._text = step, [], [], ""
        if begun is None:
            first = (step or 0) - len(whole)
            return _counted(whole, first) if step is not None and first > 0 else []
        between = None if step is None or step <= begun else step - begun
        if whole:
            if between is not None:
                self._every_step = len(whole) == between
            return _counted(whole if self._every_step else whole[:1], begun)
        if between is not None:
            self._one_micro = between == 1 and len(micro) == 1
        return _counted(micro, begun) if self._one_micro and len(micro) == 1 else []


def _counted(lines: list[tuple[float, int, dict[str, float]]], first: int) -> list[Timed]:
    return [Timed(first + i, *line) for i, line in enumerate(lines)]


def _values(times: dict[str, float], suffix: str) -> dict[str, float]:
    """`compute_s`: forward and inner backward; the outer one holds communication and cannot stand in."""
    forward, inner = times.get(f"fwd{suffix}", math.nan), times.get(f"bwd_inner{suffix}", math.nan)
    said = {
        "compute_s": (forward + inner) / 1000,
        "comm_wait_s": times.get(f"bwd_allreduce{suffix}", math.nan) / 1000,
    }
    return {name: value for name, value in said.items() if not math.isnan(value)}
