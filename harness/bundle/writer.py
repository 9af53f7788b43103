"""Writing a bundle in phases. A run that dies half-way leaves a folder that says how far it got."""

import dataclasses
import time
from pathlib import Path

from harness.bundle.codec import dump_line, write_json
from harness.bundle.layout import Layout
from harness.model.bundle import Event, Injection, Manifest, RankMap, RunRecord, Uncollected


class BundleWriter:
    """One run's bundle while it grows.

    A full disk never raises out of here: what could not be written goes to `lost` and, as soon as
    that can be written, to the manifest.
    """

    def __init__(self, root: Path, manifest: Manifest) -> None:
        self.layout = Layout(root)
        self.manifest = manifest
        self.lost: list[Uncollected] = []

    def create(self, record: RunRecord) -> None:
        """Make the folder and write what is known before anything starts.

        Raises:
            OSError: the folder cannot be written.
        """
        for folder in (self.layout.live, self.layout.logs, self.layout.flight_recorder):
            folder.mkdir(parents=True)
        write_json(self.layout.run, record)
        write_json(self.layout.manifest, self.manifest)

    def stopped(self) -> None:
        """Record that the harness begins to stop the job: what ends now ends because of us."""
        self._update(stopped=time.time())

    def injected(self, fault: str, step: int | None, rank: int | None = None) -> None:
        """Record that the harness itself breaks the job, or one rank, now and from outside."""
        with self.layout.injection.open("ab") as file:
            file.write(dump_line(Injection("fired", time.time(), rank, fault, step)))

    def phase(self, name: str) -> None:
        """Record that a phase was reached."""
        self._update(phases=(*self.manifest.phases, name))

    def notice(self, text: str) -> None:
        """Record what made the harness look."""
        self._update(notice=text)

    def collected(self, what: str) -> None:
        """Record one kind of evidence as collected."""
        self._update(collected=(*self.manifest.collected, what))

    def not_collected(self, what: str, why: str) -> None:
        """Record what is missing and why; the run goes on."""
        entry = Uncollected(what, why)
        if entry not in self.manifest.not_collected:
            self._update(not_collected=(*self.manifest.not_collected, entry))

    def event(self, what: str, rank: int | None = None, detail: str | None = None) -> None:
        """Append one line to events.jsonl, stamped now."""
        try:
            with self.layout.events.open("ab") as file:
                file.write(dump_line(Event(time.time(), what, rank, detail)))
        except OSError as error:
            self._lose("events.jsonl", error)

    def rank_map(self, ranks: RankMap) -> None:
        """Write ranks.json."""
        self.save(self.layout.ranks, ranks)

    def save(self, path: Path, value: object) -> None:
        """Write one JSON file of the bundle."""
        try:
            write_json(path, value)
        except OSError as error:
            self._lose(path.name, error)

    def _update(self, **changes: object) -> None:
        self.manifest = dataclasses.replace(self.manifest, **changes)  # type: ignore[arg-type]
        self.save(self.layout.manifest, self.manifest)

    def _lose(self, what: str, error: OSError) -> None:
        self.lost.append(Uncollected(what, error.strerror or str(error)))
