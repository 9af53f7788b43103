"""The readers of all formats, side by side over one text file."""

from harness.diagnose.signals.formats.deepspeed import DeepSpeed
from harness.diagnose.signals.formats.file_records import FileRecords
from harness.diagnose.signals.formats.megatron import Megatron
from harness.diagnose.signals.formats.torchtitan_lines import TorchtitanLines
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import Line


class AllReaders:
    """Takes the lines that may hold a record, and those that one of them wants besides."""

    def __init__(self, file: TextFile) -> None:
        self.file = file
        self._torchtitan, self._megatron, self._deepspeed = (
            TorchtitanLines(file),
            Megatron(file),
            DeepSpeed(file),
        )

    @property
    def follow(self) -> bool:
        """Whether the next line is wanted, whatever is in it."""
        return self._megatron.follow

    def feed(self, line: Line) -> None:
        """Look at one line; lines come in order."""
        self._torchtitan.feed(line)
        self._megatron.feed(line)
        self._deepspeed.feed(line)

    def finish(self) -> FileRecords:
        """All that the file said, once it has been read."""
        megatron = self._megatron
        pieces = (*self._torchtitan.pieces(), *megatron.finish(), *self._deepspeed.finish())
        return FileRecords(
            self.file.name,
            pieces,
            tuple(sorted(megatron.timers, key=lambda row: row.line)),
            tuple({**self._torchtitan.open_spans(), **megatron.open_spans()}.items()),
            world_size=megatron.world_size,
            local_rank=megatron.local_rank,
        )
