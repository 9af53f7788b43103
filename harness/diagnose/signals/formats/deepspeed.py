"""DeepSpeed's lines on progress, throughput and timers.

Source of the formats: DeepSpeed, runtime/engine.py (_report_progress), runtime/pipe/engine.py (train_batch),
utils/timer.py (ThroughputTimer, SynchronizedWallClockTimer); utils/logging.py: ``[Rank 0]`` is global.
"""

import math
import re
from dataclasses import dataclass, field

from harness.diagnose.signals.formats.builder import Piece, StepBuilder
from harness.diagnose.signals.formats.dates import unix_time
from harness.diagnose.signals.formats.deepspeed_timers import TimerLines
from harness.diagnose.signals.formats.numbers import number
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import Line

FORMAT = "deepspeed"
MAX_RECORD_CHARS = 400

_RANK = re.compile(r"\[Rank (\d{1,7})\]")
_PROGRESS = re.compile(r"\bstep=(\d{1,12}), skipped=(\d{1,12}), lr=\[?([^\],]+)[\],]")
_THROUGHPUT = re.compile(r"\bepoch=\d+/micro_step=\d+/global_step=(\d{1,12}), ")
_PIPELINE = re.compile(
    r"\bsteps?:\s*(\d{1,12})(?:\s*/\s*\d+)?\s+loss:\s*(\S+)\s"
    r".*?iter time \(s\):\s*(\S+)\s+samples/sec:\s*(\S+)"
)
_PAIR = re.compile(r"(\w+)=(-?[\d.]+(?:e[-+]?\d+)?|-?inf|nan)(GB)?(?=,|\s|$)")
_TIMES = re.compile(r"\btime \(ms\) \|")


@dataclass
class DeepSpeed:
    """Records of one file. `skipped` counts since the record before; ``samples_per_s`` is an extra column."""

    source: TextFile
    _builders: dict[int, StepBuilder] = field(default_factory=dict)
    _timers: dict[int, TimerLines] = field(default_factory=dict)
    _skipped: dict[int, tuple[int, int]] = field(default_factory=dict)

    def feed(self, line: Line) -> None:
        """Look at one line."""
        text = line.text
        if "skipped=" in text and (found := _PROGRESS.search(text)):
            self._progress(line, found)
        elif "global_step=" in text and (found := _THROUGHPUT.search(text)):
            self._throughput(line, found)
        elif "iter time (s)" in text and (found := _PIPELINE.search(text)):
            self._pipeline(line, found)
        elif "time (ms) |" in text and (found := _TIMES.search(text)):
            rank = self._rank(line)
            t = unix_time(text, found.start())
            self._timers.setdefault(rank, TimerLines()).feed(line, text[found.end() - 1 :], t)

    def finish(self) -> list[Piece]:
        """The records of all ranks in this file, once it has been read."""
        for rank in self._timers:
            self._assign(rank, None)
        return [piece for builder in self._builders.values() for piece in builder.pieces()]

    def _progress(self, line: Line, found: re.Match[str]) -> None:
        rank, step, skipped = self._rank(line), int(found[1]), int(found[2])
        values: dict[str, float] = {}
        if (lr := number(found[3].strip())) is not None:
            values["lr"] = lr
        before = self._skipped.get(rank)
        if before and before[0] < step and before[1] <= skipped:
            values["skipped"] = float(skipped - before[1])
        elif skipped == 0:
            values["skipped"] = 0.0
        if before is None or before[0] != step:
            self._skipped[rank] = (step, skipped)
        elif "skipped" in values:
            # A doubled line says nothing new.
            del values["skipped"]
        self._step(rank, step, line, found.start(), values)

    def _throughput(self, line: Line, found: re.Match[str]) -> None:
        pairs = [
            (name, number(value), unit)
            for name, value, unit in _PAIR.findall(line.text[: found.end() + MAX_RECORD_CHARS], found.end())
        ]
        if not line.whole:
            # The file ends inside the line: its last number may be cut.
            pairs = pairs[:-1]
        said = {name: (value, unit) for name, value, unit in pairs if value is not None}
        values: dict[str, float] = {}
        if "CurrSamplesPerSec" in said and math.isfinite(said["CurrSamplesPerSec"][0]):
            values["samples_per_s"] = said["CurrSamplesPerSec"][0]
        if "MaxMemAllocated" in said and said["MaxMemAllocated"][1] == "GB":
            values["mem_allocated_peak"] = said["MaxMemAllocated"][0] * 2**30
        self._step(self._rank(line), int(found[1]), line, found.start(), values)

    def _pipeline(self, line: Line, found: re.Match[str]) -> None:
        names = ("loss", "step_time_s", "samples_per_s")
        said = {name: number(text) for name, text in zip(names, found.groups()[1:], strict=True)}
        if not line.whole:
            said["samples_per_s"] = None
        values = {name: value for name, value in said.items() if value is not None}
        self._step(self._rank(line), int(found[1]), line, found.start(), values)

    def _step(self, rank: int, step: int, line: Line, before: int, values: dict[str, float]) -> None:
        timers = self._timers.get(rank)
        if timers is None:
            timers = self._timers[rank] = TimerLines()
        if timers.step != step:
            self._assign(rank, step)
        self._builder(rank).add(step, unix_time(line.text, before), line.number, values)

    def _assign(self, rank: int, step: int | None) -> None:
        """Give the timers that were printed since the last step line to the steps that they are of."""
        builder = self._builder(rank)
        for timed in self._timers[rank].take(step):
            builder.add(timed.step, timed.t, timed.line, timed.values)

    def _builder(self, rank: int) -> StepBuilder:
        return self._builders.setdefault(rank, StepBuilder(self.source, rank, FORMAT))

    def _rank(self, line: Line) -> int:
        """Of whoever printed; DeepSpeed's lines without a rank are rank 0's."""
        named = _RANK.search(line.text)
        stated = int(named[1]) if named else line.rank
        return next((r for r in (stated, self.source.rank) if r is not None), 0)
