"""Reading a bundle, or what is left of one. Nothing here raises on damage: it says what is damaged."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from harness.bundle.layout import Layout
from harness.model.bundle import (
    Event,
    Injection,
    LauncherRecord,
    Manifest,
    RankMap,
    RankRecord,
    RunRecord,
)

T = TypeVar("T")


@dataclass
class BundleReader:
    """One bundle under `layout.root`. `complaints` grows by a line for each damaged file."""

    layout: Layout
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, root: Path) -> "BundleReader":
        """Open the folder `root`; it need not be complete."""
        return cls(Layout(root))

    def relative(self, path: Path) -> str:
        """A path as citations give it."""
        return str(path.relative_to(self.layout.root))

    def manifest(self) -> Manifest | None:
        """bundle.json, or None where it is missing or damaged."""
        return self._file(self.layout.manifest, Manifest)

    def run(self) -> RunRecord | None:
        """run.json. For the judge only."""
        return self._file(self.layout.run, RunRecord)

    def injections(self) -> tuple[Injection, ...]:
        """injection.jsonl. For the judge only."""
        return tuple(self._lines(self.layout.injection, Injection))

    def events(self) -> tuple[Event, ...]:
        """events.jsonl: the harness's own clock."""
        return tuple(self._lines(self.layout.events, Event))

    def launcher(self) -> LauncherRecord | None:
        """launcher.json, or None."""
        return self._file(self.layout.launcher, LauncherRecord)

    def rank_map(self) -> RankMap | None:
        """ranks.json; where it was never merged, the ranks' own registrations."""
        found = self._file(self.layout.ranks, RankMap)
        if found is not None:
            return found
        live = self.registrations()
        return RankMap(live[0].world_size, live) if live else None

    def registrations(self) -> tuple[RankRecord, ...]:
        """What running ranks said of themselves, by attempt and rank."""
        files = sorted(self.layout.live.glob("attempt_*_rank_*.json"))
        read = (self._file(path, RankRecord) for path in files)
        return tuple(sorted((r for r in read if r), key=lambda r: (r.attempt, r.rank)))

    def attempts(self) -> tuple[int, ...]:
        """Attempt numbers that left any evidence, oldest first."""
        folders = (self.layout.flight_recorder, self.layout.stacks, self.layout.signals)
        numbers = {
            int(number)
            for folder in folders
            for entry in (folder.iterdir() if folder.is_dir() else ())
            if (number := entry.name.removeprefix("attempt_")).isascii() and number.isdigit()
        }
        return tuple(sorted(numbers))

    def _file(self, path: Path, kind: type[T]) -> T | None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.complaints.append(f"{self.relative(path)}: {error.strerror}")
            return None
        return self._decode(path, data, kind)

    def _lines(self, path: Path, kind: type[T]) -> Iterator[T]:
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            self.complaints.append(f"{self.relative(path)}: {error.strerror}")
            return
        for line in lines:
            value = self._decode(path, line, kind)
            if value is not None:
                yield value

    def _decode(self, path: Path, data: bytes, kind: type[T]) -> T | None:
        # It takes a tenth of a second to import: only where there is something to read.
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(kind).validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            self.complaints.append(f"{self.relative(path)}: {place}: {first['msg']}")
            return None
