"""torchtitan's metric line on stdout, and its lines about checkpoints.

Source of the format: torchtitan, components/metrics.py, MetricsProcessor.log; components/checkpoint.py.
"""

import re
from dataclasses import dataclass, field

from harness.diagnose.signals.formats.builder import Piece, StepBuilder
from harness.diagnose.signals.formats.dates import unix_time
from harness.diagnose.signals.formats.foreign import OpenSpan
from harness.diagnose.signals.formats.numbers import number
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import Line

FORMAT = "torchtitan"
MAX_RECORD_CHARS = 400

_METRICS = re.compile(r"step:(?<!\wstep:)(?<!validate step:)\s*(\d{1,12})\s+loss:\s*(?=\S)")
_PAIR = re.compile(r"(\w+):\s*(\S+)")
_MEMORY = re.compile(r"([\d.,]+)GiB\(")
_SAVED = re.compile(r"Finished (?:saving|staging) the checkpoint.*? in ([\d.]+) seconds")
_SAVING = re.compile(r"(?:Saving|Staging) the checkpoint\b")
_OF_TRAINING = frozenset(("tflops", "mfu"))
"""Validation prints the rest, too."""

_PLAIN = {"loss": "loss", "grad_norm": "grad_norm", "tps": "tps", "tflops": "tflops"}


@dataclass
class TorchtitanLines:
    """The records that ranks print. `loss` is the mean over all ranks; memory is the peak reserved, in bytes.

    `mfu` in percent, absent where the line says ``N/A``; ``tflops`` is an extra column.
    """

    source: TextFile
    _builders: dict[int, StepBuilder] = field(default_factory=dict)
    _saving: dict[int, OpenSpan] = field(default_factory=dict)

    def feed(self, line: Line) -> None:
        """Look at one line."""
        if "loss:" in line.text and "step:" in line.text:
            if found := _METRICS.search(line.text):
                self._metrics(line, found)
        elif "the checkpoint" in line.text:
            self._checkpoint(line)

    def pieces(self) -> list[Piece]:
        """The records of all ranks in this file."""
        return [piece for builder in self._builders.values() for piece in builder.pieces()]

    def open_spans(self) -> dict[int, OpenSpan]:
        """Saves that were begun and not reported as finished by the end of the file."""
        return dict(self._saving)

    def _metrics(self, line: Line, found: re.Match[str]) -> None:
        pairs = _PAIR.findall(line.text, found.start(), found.start() + MAX_RECORD_CHARS)
        if not line.whole:
            # The file ends inside the line: its last number may be cut.
            pairs = pairs[:-1]
        said = dict(pairs)
        if not (said.keys() & _OF_TRAINING or (not line.whole and "grad_norm" in said)):
            return
        values = {
            ours: value for key, ours in _PLAIN.items() if (value := number(said.get(key, ""))) is not None
        }
        memory = _MEMORY.match(said.get("memory", ""))
        if memory and (size := number(memory[1])) is not None:
            values["mem_reserved_peak"] = size * 2**30
        if (mfu := number(said.get("mfu", "").removesuffix("%"))) is not None:
            values["mfu"] = mfu
        rank = self._rank(line)
        builder = self._builders.setdefault(rank, StepBuilder(self.source, rank, FORMAT))
        builder.add(int(found[1]), unix_time(line.text, found.start()), line.number, values)
        self._saving.pop(rank, None)

    def _checkpoint(self, line: Line) -> None:
        rank = self._rank(line)
        builder = self._builders.get(rank)
        step = builder.last_step if builder else None
        if saved := _SAVED.search(line.text):
            self._saving.pop(rank, None)
            duration = number(saved[1])
            if builder is not None and step is not None and duration is not None:
                builder.amend(step, line.number, {"ckpt_duration_s": duration})
        elif begun := _SAVING.search(line.text):
            t = unix_time(line.text, begun.start())
            self._saving[rank] = OpenSpan("checkpoint_save", step, t, self.source.name, line.number)

    def _rank(self, line: Line) -> int:
        for rank in (line.rank, self.source.rank, line.local_rank, self.source.local_rank):
            if rank is not None:
                return rank
        return 0
