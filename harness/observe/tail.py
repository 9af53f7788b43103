"""Reading growing files: only what is new, never a half-written line."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class StepTail:
    """New per-step records of all ranks since the last look."""

    folder: Path
    _offsets: dict[Path, int] = field(default_factory=dict)

    def new_durations_s(self) -> list[float]:
        """Step times of the records that were appended since the last call, over all ranks."""
        durations: list[float] = []
        if not self.folder.is_dir():
            return durations
        for path in self.folder.glob("rank_*.jsonl"):
            durations.extend(self._read(path))
        return durations

    def _read(self, path: Path) -> list[float]:
        offset = self._offsets.get(path, 0)
        try:
            if path.stat().st_size <= offset:
                return []
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(whole)
        return [d for line in whole.splitlines() if (d := _step_time(line)) is not None]


def _step_time(line: bytes) -> float | None:
    try:
        return float(json.loads(line)["step_time_s"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
