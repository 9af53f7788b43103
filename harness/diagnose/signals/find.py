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
from harness.diagnose.signals.starts import FAR_GAPS, FAR_STEPS, Cuts, agreed, cuts_of, split, undone
from harness.model.errors import UsageError

MOST_NAMED = 6
"""Runs that are named where several were given."""


@dataclass(frozen=True)
class Records:
    """Step records by start: each rank's history and progress, and a complaint for what cannot be read.

    Starts are numbered as attempts are, but for files with restarts inside: `last` then is the number of an
    attempt's last start.
    """

    histories: Mapping[int, Sequence[RankHistory]] = field(default_factory=dict)
    progress: Mapping[int, Mapping[int, Progress]] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()
    last: Mapping[int, int] = field(default_factory=dict)

    def of_attempt(self, attempt: int) -> Mapping[int, Progress]:
        """How far each rank came in an attempt, in its last start."""
        return self.progress.get(self.last.get(attempt, attempt), {})

    def only(self, ranks: Container[int], folder: str) -> "Records":
        """The records of some ranks, their files named with a folder in front."""
        return Records(
            {a: tuple(_inside(h, folder) for h in hs if h.rank in ranks) for a, hs in self.histories.items()},
            {
                a: {r: _inside(p, folder) for r, p in ps.items() if r in ranks}
                for a, ps in self.progress.items()
            },
            tuple(f"{folder}/{line}" for line in self.complaints),
            self.last,
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
        {a: {r: own for p in parts for r, own in p.progress.get(a, {}).items()} for a in attempts},
        tuple(line for part in parts for line in part.complaints),
        {a: number for part in parts for a, number in part.last.items()},
    )


def read_records(files: Iterable[tuple[Path, str, int]], foreign: Iterable[StepColumns] = ()) -> Records:
    """Read files, given with the name under which they are cited and their attempt; add what others wrote.

    A rank that one attempt has twice keeps the longer records, and that is said. One file is in memory at a
    time. Files in which steps go back are read again when it is known whether most of the attempt's do so: a
    restart inside files makes two starts of one attempt, and those that follow are renumbered.

    Raises:
        UsageError: the files are of several runs.
    """
    complaints: list[str] = []
    seen: list[_Seen] = []
    whole: list[_Boiled] = []
    for path, name, attempt in _once(files):
        columns = _read(path, name, attempt, complaints)
        if columns is None:
            continue
        cuts = cuts_of(columns.step)
        seen.append(_Seen.of(path, columns, cuts))
        if not cuts.back:
            whole += [(attempt, start, *_boiled(part)) for start, part in split(columns, cuts, ())]
    _refuse_several_runs(seen)
    resumed = {a: agreed([s.cuts for s in seen if s.attempt == a]) for a in {s.attempt for s in seen}}
    again = (part for s in seen if s.cuts.back for part in _read_again(s, resumed[s.attempt], complaints))
    others = ((c.attempt, 0, *_boiled(c)) for c in foreign if len(c))
    return _numbered(chain(whole, again, others), resumed, complaints)


def _numbered(
    parts: Iterable["_Boiled"], resumed: Mapping[int, Sequence[int]], complaints: list[str]
) -> Records:
    """All starts of all ranks, numbered alike: by attempt, and those inside one attempt one after another."""
    found: dict[int, dict[int, tuple[RankHistory, Progress]]] = {}
    for attempt, start, history, progress in parts:
        number = attempt + start + sum(len(r) for a, r in resumed.items() if a < attempt)
        known = found.setdefault(number, {})
        before = known.get(history.rank)
        if before is not None:
            kept, left = before[0], history
            if kept.records < left.records:
                kept, left = left, kept
            complaints.append(f"{left.file}: rank {left.rank} has longer records in {kept.file}, left out")
            if kept is not history:
                continue
        known[history.rank] = dataclasses.replace(history, attempt=number), progress
    for number, of_ranks in found.items():
        found[number] = _together(of_ranks, complaints)
    last = {a: a + sum(len(r) for b, r in resumed.items() if b <= a) for a in resumed}
    return Records(
        {n: tuple(own[r][0] for r in sorted(own)) for n, own in sorted(found.items())},
        {n: {r: progress for r, (_, progress) in own.items()} for n, own in found.items()},
        tuple(complaints),
        {a: number for a, number in last.items() if a != number},
    )


def _together(
    ranks: dict[int, tuple[RankHistory, Progress]], complaints: list[str]
) -> dict[int, tuple[RankHistory, Progress]]:
    """Ranks whose steps are of the same run: those far away from the rank with most records are left out."""
    longest = max((h for h, _ in ranks.values()), key=lambda h: (h.records, -h.rank))
    begin, end = longest.steps.tolist()
    far = FAR_GAPS * max(end - begin + 1, FAR_STEPS)
    kept = {}
    for rank, (history, progress) in ranks.items():
        if history.steps[0] > end + far or history.steps[-1] < begin - far:
            complaints.append(f"{history.file}: its steps are far from all that other ranks have, left out")
        else:
            kept[rank] = history, progress
    return kept


def bundle_files(signals: Path, root: Path) -> Iterator[tuple[Path, str, int]]:
    """The step records of a bundle, attempt by attempt."""
    for folder in sorted(signals.glob("attempt_*")):
        if (number := _number(folder.name)) is not None:
            for path in sorted(folder.glob("rank_*.jsonl")):
                yield path, str(path.relative_to(root)), number


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
    return next((n for part in reversed(path.parts) if (n := _number(part)) is not None), 0)


def _number(folder: str) -> int | None:
    """The attempt that a folder's name gives."""
    number = folder.removeprefix("attempt_")
    return int(number) if folder != number and number.isascii() and number.isdigit() else None


_Boiled = tuple[int, int, RankHistory, Progress]
"""Attempt, start inside it, and one rank's records of that start."""


@dataclass(frozen=True)
class _Seen:
    """One file that was read: where it lies, whose it is, its first record, and where its steps go back."""

    path: Path
    name: str
    attempt: int
    rank: int
    began: tuple[float, int]
    cuts: Cuts

    @classmethod
    def of(cls, path: Path, columns: StepColumns, cuts: Cuts) -> "_Seen":
        began = float(columns.t[0]), int(columns.step[0])
        return cls(path, columns.file, columns.attempt, columns.rank, began, cuts)

    @property
    def place(self) -> Path:
        """The folder of the run, or of the node's part of it: what lies above ``attempt_<n>``."""
        folder = self.path.parent.absolute()
        above = next((p.parent for p in (folder, *folder.parents) if _number(p.name) is not None), None)
        return above or folder


def _refuse_several_runs(seen: Sequence[_Seen]) -> None:
    """Nodes of one run hold different ranks; two places that hold different records of one rank do not."""
    holders: dict[tuple[int, int], list[_Seen]] = {}
    for own in seen:
        holders.setdefault((own.attempt, own.rank), []).append(own)
    runs: set[Path] = set()
    for same in holders.values():
        # A copy begins with the same record.
        if len({s.place for s in same}) > 1 and len({s.began for s in same}) > 1:
            runs |= {s.place for s in same}
    if runs:
        ordered = sorted(runs)
        names = [p.name if sum(p.name == q.name for q in ordered) == 1 else str(p) for p in ordered]
        shown = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
        raise UsageError(f"this folder holds {len(runs)} runs of step records: {shown}; give one of them")


def _boiled(columns: StepColumns) -> tuple[RankHistory, Progress]:
    return boil_down(columns), Progress.of(columns)


def _read(path: Path, name: str, attempt: int, complaints: list[str]) -> StepColumns | None:
    try:
        columns, said = read_columns(path, name, attempt)
    except OSError as error:
        complaints.append(f"{name}: {error.strerror}")
        return None
    complaints.extend(said)
    return columns


def _read_again(seen: _Seen, resumed: Sequence[int], complaints: list[str]) -> Iterator[_Boiled]:
    """The starts in a file whose steps go back, where those of most ranks do."""
    columns = _read(seen.path, seen.name, seen.attempt, [])
    if columns is None:
        return
    cuts = cuts_of(columns.step)
    if back := undone(cuts, resumed):
        times = "once" if back == 1 else f"{back} times"
        complaints.append(f"{seen.name}: steps go back {times} without a restart: put in order")
    for start, part in split(columns, cuts, resumed):
        yield seen.attempt, start, *_boiled(part)


def _once(files: Iterable[tuple[Path, str, int]]) -> Iterator[tuple[Path, str, int]]:
    """Each file once, however often it was given."""
    known: set[Path] = set()
    for path, name, attempt in files:
        if (real := path.resolve()) not in known:
            known.add(real)
            yield path, name, attempt
