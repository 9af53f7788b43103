"""Megatron's timers and the report of its straggler detector.

Source of the formats: Megatron Core, core/timers.py (Timers, options max, minmax and all) and core/utils.py
(StragglerDetector.report).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.diagnose.signals.formats.foreign import TimerRow
from harness.diagnose.signals.formats.numbers import number
from harness.diagnose.texts.lines import Line

HEADER = re.compile(r"(?:\(min, max\) |max )?times? across ranks \(ms\):")
MAX_FOREIGN_LINES = 3
"""So many lines of other ranks may stand inside a block; its end is not marked."""

MILLIWATTS_ABOVE = 5000.0
"""torch.cuda.power_draw gives milliwatts, and the report calls them W. No GPU draws five kilowatts."""

_MIN_MAX = re.compile(r"\s*([\w/-]+(?: [\w/-]+)*)[ .]*: \(([\d.]+), ([\d.]+)\)\s*$")
_MAX = re.compile(r"\s*([\w/-]+(?: [\w/-]+)*) ?\.+: ([\d.]+)\s*$")
_NAME = re.compile(r" {1,3}([A-Za-z][\w/-]*(?: [\w/-]+)*):\s*$")
_RANK = re.compile(r"\s*rank\s+(\d{1,7}): ([\d.]+)\s*$")
_REPORTED = re.compile(r"\b(Mn|Mx)(\w+)/Rnk: ([\d.]+)(ms|W|C|%|MHz|TF)/(\d{1,7})\b")
_LISTED = re.compile(r"\^\^\^\^ (Bottom|Top)\s+\d+ Ranks with (lowest|highest)\s+Etpt\(TF\):(.*)")
_ENTRY = re.compile(r"([\d.]+)(?:TF)?/(\d{1,7})(?=,|\s*$)")


@dataclass
class TimerBlock:
    """The lines after a header of timers. Times are seconds, each an average over the log interval."""

    step: int | None
    file: str
    rows: list[TimerRow] = field(default_factory=list)
    by_rank: dict[str, dict[int, float]] = field(default_factory=dict)
    """Option ``all`` only: timer -> rank -> seconds."""

    lines: dict[str, int] = field(default_factory=dict)
    rank_lines: dict[int, int] = field(default_factory=dict)
    """The first line of each timer, and of each rank."""

    _name: str | None = None
    _last_rank: int = -1
    _foreign: int = 0

    def feed(self, line: Line, text: str) -> bool:
        """Take a line if it belongs to the block."""
        taken = line.whole and self._take(text, line.number)
        self._foreign = 0 if taken else self._foreign + 1
        return taken

    @property
    def ended(self) -> bool:
        """Whether too many lines came that do not belong to it."""
        return self._foreign > MAX_FOREIGN_LINES

    def finish(self) -> list[TimerRow]:
        """One row for each timer."""
        for name, times in self.by_rank.items():
            least, most = min(times, key=lambda r: (times[r], r)), max(times, key=lambda r: (times[r], -r))
            self.rows.append(self._row(name, times[least], times[most], self.lines[name], least, most))
        return self.rows

    def _take(self, text: str, at: int) -> bool:
        if found := _RANK.match(text):
            rank, seconds = int(found[1]), _seconds(found[2])
            if rank <= self._last_rank:
                # Ranks are printed in order: the next timer's name was lost.
                self._name = None
            self._last_rank = rank
            if self._name is not None and seconds is not None:
                self.by_rank.setdefault(self._name, {}).setdefault(rank, seconds)
                self.lines.setdefault(self._name, at)
                self.rank_lines.setdefault(rank, at)
            return True
        if found := _MIN_MAX.match(text):
            least, most = _seconds(found[2]), _seconds(found[3])
            if least is not None and most is not None:
                self.rows.append(self._row(found[1], least, most, at))
            return True
        if found := _MAX.match(text):
            most = _seconds(found[2])
            if most is not None:
                self.rows.append(self._row(found[1], math.nan, most, at))
            return True
        if found := _NAME.match(text):
            self._name, self._last_rank = found[1], -1
            return True
        return False

    def _row(
        self,
        name: str,
        least: float,
        most: float,
        at: int,
        min_rank: int | None = None,
        max_rank: int | None = None,
    ) -> TimerRow:
        return TimerRow(self.step, name, least, most, min_rank, max_rank, "s", self.file, at)


def rank_values(block: TimerBlock) -> dict[int, dict[str, float]]:
    """Fields of each rank from a block with option ``all``.

    `compute_s`: forward and backward without the batch generator, whose timer runs inside the forward's;
    waits for tensor and expert parallel peers inside them are part of it.
    """
    times: Mapping[str, Mapping[int, float]] = block.by_rank
    batch = times.get("batch-generator", {})
    values: dict[int, dict[str, float]] = {}
    forward, backward = times.get("forward-compute", {}), times.get("backward-compute", {})
    for rank in forward.keys() & backward.keys():
        if batch and rank not in batch:
            # Its line was lost, and what is to be taken off with it.
            continue
        compute = forward[rank] + backward[rank] - batch.get(rank, 0.0)
        values.setdefault(rank, {})["compute_s"] = max(compute, 0.0)
    named = {"data_wait_s": batch, "comm_wait_s": times.get("all-grads-sync", {})}
    for ours, by_rank in (*named.items(), ("ckpt_duration_s", times.get("save-checkpoint", {}))):
        for rank, seconds in by_rank.items():
            values.setdefault(rank, {})[ours] = seconds
    return values


def straggler_rows(line: Line, step: int | None, file: str) -> list[TimerRow]:
    """The straggler detector's report: a row a measure, named as there (Rtt, Pwr, Tmp, Utl, Clk, DRtt, Etpt).

    The lists of ranks with the lowest and highest throughput give a row a rank, least and greatest equal.
    """
    if listed := _LISTED.search(line.text):
        name = f"Etpt {listed[2]}"
        entries = [(number(value), int(rank)) for value, rank in _ENTRY.findall(listed[3])]
        return [
            TimerRow(step, name, value, value, rank, rank, "TF", file, line.number)
            for value, rank in entries
            if value is not None
        ]
    said: dict[str, dict[str, tuple[float, int, str]]] = {}
    for side, name, digits, unit, rank in _REPORTED.findall(line.text):
        value = number(digits)
        if value is not None:
            said.setdefault(name, {}).setdefault(side, (*_scaled(value, int(rank), unit),))
    rows = []
    for name, sides in said.items():
        least, most = sides.get("Mn"), sides.get("Mx")
        unit = (least or most or (0.0, 0, ""))[2]
        rows.append(
            TimerRow(
                step,
                name,
                least[0] if least else math.nan,
                most[0] if most else math.nan,
                least[1] if least else None,
                most[1] if most else None,
                unit,
                file,
                line.number,
            )
        )
    return rows


def _scaled(value: float, rank: int, unit: str) -> tuple[float, int, str]:
    if unit == "ms":
        return value / 1000, rank, "s"
    if unit == "W" and value > MILLIWATTS_ABOVE:
        return value / 1000, rank, unit
    return value, rank, unit


def _seconds(text: str) -> float | None:
    value = number(text)
    return None if value is None else value / 1000
