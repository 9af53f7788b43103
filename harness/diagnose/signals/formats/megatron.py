"""Megatron's iteration line, wrapped or not, its checkpoint lines and the size of its world.

Source of the formats: Megatron-LM, training/training.py (training_log, print_rank_last) and
training/checkpointing.py.
"""

import math
import re
from dataclasses import dataclass, field

from harness.diagnose.signals.formats.builder import Piece, StepBuilder
from harness.diagnose.signals.formats.dates import unix_time
from harness.diagnose.signals.formats.foreign import LAST_RANK, OpenSpan, TimerRow
from harness.diagnose.signals.formats.megatron_timers import HEADER, TimerBlock, rank_values, straggler_rows
from harness.diagnose.signals.formats.numbers import number
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import Line

FORMAT = "megatron"
MAX_WRAPS = 8
MAX_SEGMENT_CHARS = 200

_ITERATION = re.compile(r"\biteration\s+(\d{1,12})\s*/\s*\d+ \|")
_END = re.compile(r"nan\s*iterations:\s*\d+\s*\|")
_SEGMENT = re.compile(r"\s*(\S.*?):?\s+(\S+)\s*")
_ELSE = re.compile(r"validation loss|/Rnk:|time \(ms\) \||\biteration\s+\d+\s*/|ranks \(ms\)")
_SAVING = re.compile(r"\bsaving checkpoint at iteration\s+(\d{1,12})\b")
_SAVED = re.compile(r"\bsuccessfully saved checkpoint (?:from|at) iteration\s+(\d{1,12})\b")
_WORLD = re.compile(r"\b(?:using world size:|world_size \.+)\s*(\d{1,7})\b(?!\.)")

_FIELDS = {
    "consumedsamples": ("consumed_samples", 1.0),
    "elapsedtimeperiteration(ms)": ("step_time_s", 1e-3),
    "throughputperGPU(TFLOP/s/GPU)": ("tflops", 1.0),
    "learningrate": ("lr", 1.0),
    "lossscale": ("loss_scale", 1.0),
    "gradnorm": ("grad_norm", 1.0),
    "numzeros": ("num_zeros_in_grad", 1.0),
    "paramsnorm": ("param_norm", 1.0),
    "maxattentionlogit": ("max_attn_logit", 1.0),
    "numberofskippediterations": ("skipped", 1.0),
    "tokenspergpupersecond(tgs)": ("tps", 1.0),
}
"""Keys without white space, since a terminal may have wrapped them: field, factor."""


@dataclass
class _Record:
    first: Line
    step: int
    t: float
    text: str
    wraps: int = 0


@dataclass
class Megatron:
    """Records of one file. Iteration lines are the last rank's, whose number may be unknown."""

    source: TextFile
    timers: list[TimerRow] = field(default_factory=list)
    world_size: int | None = None
    local_rank: int | None = None
    """Where the last rank is not stated: what the launcher's label says of who printed."""

    step: int | None = None
    _t: float = math.nan
    _builders: dict[int, StepBuilder] = field(default_factory=dict)
    _record: _Record | None = None
    _block: TimerBlock | None = None
    _block_rank: int = LAST_RANK
    _saving: tuple[int, OpenSpan] | None = None
    _saved: int | None = None

    @property
    def follow(self) -> bool:
        """Whether the next line is wanted, whatever is in it."""
        return self._record is not None or self._block is not None

    def feed(self, line: Line) -> None:
        """Look at one line."""
        if self._record is not None and self._continues(line):
            return
        header = HEADER.search(line.text) if "ranks (ms)" in line.text else None
        if self._block is not None:
            if not header and self._block.feed(line, line.without_label()):
                return
            if self._block.ended or header or _ITERATION.search(line.text):
                self._end_block()
        if "iteration" in line.text:
            self._iteration(line)
        if header:
            self._begin_block(line, line.text[header.end() :])
        elif "/Rnk: " in line.text or "Ranks with " in line.text:
            self.timers += straggler_rows(line, self.step, self.source.name)
        elif ("world size" in line.text or "world_size" in line.text) and (found := _WORLD.search(line.text)):
            self.world_size = int(found[1]) or self.world_size

    def finish(self) -> list[Piece]:
        """The records of all ranks in this file, once it has been read."""
        self._end_record()
        self._end_block()
        return [piece for builder in self._builders.values() for piece in builder.pieces()]

    def open_spans(self) -> dict[int, OpenSpan]:
        """A save that was begun, with nothing after it: neither its end nor another iteration."""
        return dict([self._saving]) if self._saving else {}

    def _iteration(self, line: Line) -> None:
        if found := _ITERATION.search(line.text):
            t = unix_time(line.text, found.start())
            self._record = _Record(line, int(found[1]), t, line.text[found.start() :])
            if _END.search(self._record.text) or not line.whole:
                self._end_record()
        elif saved := _SAVED.search(line.text):
            self._saved = int(saved[1])
            self._save_ended(unix_time(line.text, saved.start()), line.number)
        elif saving := _SAVING.search(line.text):
            self._saved = step = int(saving[1])
            t = unix_time(line.text, saving.start())
            rank = next((r for r in (line.rank, self.source.rank) if r is not None), 0)
            self._saving = (rank, OpenSpan("save-checkpoint", step, t, self.source.name, line.number))

    def _save_ended(self, t: float, at: int) -> None:
        if self._saving and (seconds := t - self._saving[1].t) >= 0 and self._saving[1].step == self._saved:
            self._builder(LAST_RANK).amend(self._saved or 0, at, {"ckpt_duration_s": seconds})
        self._saving = None

    def _continues(self, line: Line) -> bool:
        """Take a line that goes on with a wrapped record, or end the record."""
        record = self._record
        text = line.without_label()
        if record is None or record.wraps >= MAX_WRAPS or "|" not in text or _ELSE.search(text):
            self._end_record()
            return False
        record.text += text.rstrip("\n") if not record.text.endswith("|") else " " + text
        record.wraps += 1
        if _END.search(record.text) or not line.whole:
            self._end_record()
        return True

    def _end_record(self) -> None:
        record, self._record = self._record, None
        if record is None:
            return
        self.step, self._t, self._saving, self._saved = record.step, record.t, None, None
        rank = self._printed_by(record.first)
        # What follows the last bar is cut off, or no field.
        values = _values(record.text.split("|")[1:-1])
        self._builder(rank).add(record.step, record.t, record.first.number, values)

    def _printed_by(self, line: Line) -> int:
        self.local_rank = next(
            (r for r in (self.local_rank, line.local_rank, self.source.local_rank) if r is not None), None
        )
        return next((r for r in (line.rank, self.source.rank) if r is not None), LAST_RANK)

    def _begin_block(self, line: Line, rest: str) -> None:
        self._end_block()
        self._block = TimerBlock(self.step, self.source.name)
        self._block_rank = self._printed_by(line)
        if rest.strip():
            self._block.feed(line, rest)

    def _end_block(self) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        rows = block.finish()
        self.timers += rows
        step = self.step if self._saved is None else self._saved
        if step is None:
            return
        for row in rows:
            if row.name.startswith("save-checkpoint") and row.max_rank is None:
                self._builder(self._block_rank).amend(step, row.line, {"ckpt_duration_s": row.max})
        for rank, values in rank_values(block).items():
            self._builder(rank).add(step, self._t, block.rank_lines[rank], values)

    def _builder(self, rank: int) -> StepBuilder:
        return self._builders.setdefault(rank, StepBuilder(self.source, rank, FORMAT))


def _values(segments: list[str]) -> dict[str, float]:
    values: dict[str, float] = {}
    losses: dict[str, float] = {}
    for segment in segments:
        found = _SEGMENT.fullmatch(segment) if len(segment) < MAX_SEGMENT_CHARS else None
        value = number(found[2]) if found else None
        if found is None or value is None:
            continue
        key = "".join(found[1].split())
        if key in _FIELDS:
            name, factor = _FIELDS[key]
            values.setdefault(name, value * factor)
        elif key == "numberofnaniterations":
            losses["nan"] = math.inf if value > 0 else math.nan
        elif key.endswith("loss"):
            losses.setdefault(key, value)
    if losses.pop("nan", math.nan) == math.inf:
        values["loss"] = math.inf
    elif losses:
        values["loss"] = next(
            (losses[key] for key in ("lmloss", "loss") if key in losses), next(iter(losses.values()))
        )
    return values
