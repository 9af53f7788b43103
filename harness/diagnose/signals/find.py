"""Finding step records: those of a bundle by their place, anybody's by their content."""

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

from harness.diagnose.signals.columns import StepColumns
from harness.diagnose.signals.history import RankHistory, boil_down
from harness.diagnose.signals.progress import Progress
from harness.diagnose.signals.read import head_of, is_step_record, read_columns


@dataclass(frozen=True)
class Records:
    """Step records by attempt: each rank's history and progress, and a complaint for what cannot be read."""

    histories: Mapping[int, Sequence[RankHistory]] = field(default_factory=dict)
    progress: Mapping[int, Mapping[int, Progress]] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()

    def of_attempt(self, attempt: int) -> Mapping[int, Progress]:
        """How far each rank came in one start of the job."""
        return self.progress.get(attempt, {})

    def only(self, ranks: Container[int], folder: str) -> "Records":
        """The records of some ranks, their files named with a folder in front."""
        return Records(
            {a: tuple(_inside(h, folder) for h in hs if h.rank in ranks) for a, hs in self.histories.items()},
            {
                a: {r: _inside(p, folder) for r, p in ps.items() if r in ranks}
                for a, ps in self.progress.items()
            },
            tuple(f"{folder}/{line}" for line in self.complaints),
        )


T = TypeVar("T", RankHistory, Progress)


def _inside(value: T, folder: str) -> T:
    return dataclasses.replace(value, file=f"{folder}/{value.file}")


def merge_records(parts: Sequence[Records]) -> Records:
    """The records of several nodes as one: of a rank that two of them have, the last counts."""
    attempts = sorted({a for part in parts for a in part.histories})
    merged = {a: {h.rank: h for p in parts for h in p.histories.get(a, ())} for a in attempts}
    return Records(
        {a: tuple(found[r] for r in sorted(found)) for a, found in merged.items()},
        {a: {r: own for p in parts for r, own in p.of_attempt(a).items()} for a in attempts},
        tuple(line for part in parts for line in part.complaints),
    )


def read_records(files: Iterable[tuple[Path, str, int]], foreign: Iterable[StepColumns] = ()) -> Records:
    """Read files, given with the name under which they are cited and their attempt; add what others wrote.

    A rank that one attempt has twice keeps the longer records, and that is said. One file is in memory at a
    time.
    """
    histories: dict[int, dict[int, RankHistory]] = {}
    progress: dict[int, dict[int, Progress]] = {}
    complaints: list[str] = []
    for columns in chain(_read(files, complaints), foreign):
        if not len(columns):
            continue
        known = histories.setdefault(columns.attempt, {})
        before = known.get(columns.rank)
        if before is not None:
            kept, left = (before.file, columns.file)
            if before.records < len(columns):
                kept, left = left, kept
            complaints.append(f"{left}: rank {columns.rank} has longer records in {kept}, left out")
            if kept == before.file:
                continue
        known[columns.rank] = boil_down(columns)
        progress.setdefault(columns.attempt, {})[columns.rank] = Progress.of(columns)
    return Records(
        {a: tuple(h[r] for r in sorted(h)) for a, h in sorted(histories.items())}, progress, tuple(complaints)
    )


def bundle_files(signals: Path, root: Path) -> Iterator[tuple[Path, str, int]]:
    """The step records of a bundle, attempt by attempt."""
    for folder in sorted(signals.glob("attempt_*")):
        number = folder.name.removeprefix("attempt_")
        if number.isascii() and number.isdigit():
            for path in sorted(folder.glob("rank_*.jsonl")):
                yield path, str(path.relative_to(root)), int(number)


def loose_files(paths: Sequence[Path]) -> Iterator[tuple[Path, str, int]]:
    """Files of our format under any folders, known by content; the attempt is that of the folder's name."""
    for given in paths:
        root = given if given.is_dir() else given.parent
        prefix = f"{given.name}/" if len(paths) > 1 and given.is_dir() else ""
        candidates = sorted(given.rglob("*.jsonl*")) if given.is_dir() else [given]
        for path in candidates:
            if path.is_file() and is_step_record(head_of(path)):
                yield path, prefix + str(path.relative_to(root)), _attempt(path)


def _attempt(path: Path) -> int:
    for part in reversed(path.parts):
        number = part.removeprefix("attempt_")
        if part.startswith("attempt_") and number.isascii() and number.isdigit():
            return int(number)
    return 0


def _read(files: Iterable[tuple[Path, str, int]], complaints: list[str]) -> Iterator[StepColumns]:
    for path, name, attempt in files:
        try:
            starts, said = read_columns(path, name, attempt)
        except OSError as error:
            complaints.append(f"{name}: {error.strerror}")
            continue
        complaints.extend(said)
        yield from starts
