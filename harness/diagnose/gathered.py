"""All evidence of one bundle's last attempt, read by its rooms and not yet weighed."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.bundle.reader import BundleReader
from harness.diagnose.flight.evidence import Membership
from harness.diagnose.flight.parallel import OnProgress
from harness.diagnose.flight.room import FlightResult, analyse_dumps
from harness.diagnose.flight.sources import DumpSource, find_dumps
from harness.diagnose.launcher.exits import Exits, last_exits
from harness.diagnose.logs.events import LogEvent, read_rank_logs
from harness.diagnose.signals.progress import Progress, read_progress
from harness.diagnose.stacks.samples import RankStacks, read_sampling
from harness.model.bundle import Manifest, RankRecord


@dataclass(frozen=True)
class Gathered:
    """What each room read. Everything may be empty; `complaints` say what could not be read."""

    world_size: int
    manifest: Manifest | None
    ranks: Mapping[int, RankRecord]
    flight: FlightResult
    stacks: Mapping[int, RankStacks]
    exits: Exits | None
    launcher_error: str | None
    logs: tuple[LogEvent, ...]
    progress: Mapping[int, Progress]
    key_files: tuple[str, ...]
    complaints: tuple[str, ...]

    @property
    def still_moving(self) -> bool:
        """The job was looked at since its time was up, not for a stall: who computes is no culprit."""
        notice = self.manifest.notice if self.manifest else None
        return notice is not None and notice.startswith("timeout")

    @property
    def empty(self) -> bool:
        """Nothing at all was readable."""
        return not (
            self.ranks
            or self.flight.evidence.tables
            or self.stacks
            or self.exits
            or self.progress
            or self.launcher_error
        )


def gather(paths: Sequence[Path], world_size: int | None, on_progress: OnProgress) -> Gathered:
    """Read a bundle, or dumps from any number of folders, files and archives."""
    if len(paths) == 1 and BundleReader.is_bundle(paths[0]):
        return _gather_bundle(paths[0], world_size, on_progress)
    sources, complaints = find_dumps(_dump_places(paths))
    flight = analyse_dumps(sources, (), world_size, complaints=complaints, on_progress=on_progress)
    return Gathered(
        world_size=flight.evidence.world_size,
        manifest=None,
        ranks={},
        flight=flight,
        stacks={},
        exits=None,
        launcher_error=None,
        logs=(),
        progress={},
        key_files=tuple(t.file for t in flight.evidence.tables.values()),
        complaints=flight.evidence.complaints,
    )


def _dump_places(paths: Sequence[Path]) -> list[Path]:
    """Where the dumps of each path are: of a bundle only those of its last attempt."""
    places: list[Path] = []
    for path in paths:
        folders = sorted((path / "flight_recorder").glob("attempt_*")) if BundleReader.is_bundle(path) else []
        places.append(folders[-1] if folders else path)
    return places


def _gather_bundle(root: Path, world_size: int | None, on_progress: OnProgress) -> Gathered:
    """Read a bundle. The spec and the injection record stay closed."""
    reader = BundleReader.at(root)
    manifest = reader.manifest()
    record = reader.launcher()
    exits = last_exits(record)
    rank_map = reader.rank_map()
    attempt = exits.attempt.attempt if exits else max(reader.attempts(), default=0)
    ranks = {r.rank: r for r in (rank_map.ranks if rank_map else ()) if r.attempt == attempt}
    recorded = (manifest.world_size if manifest else None) or (rank_map.world_size if rank_map else None)
    world = recorded or world_size
    if recorded and world_size and recorded != world_size:
        reader.complaints.append(f"the bundle records {recorded} ranks: --world-size {world_size} is ignored")
    sources, unreadable = _dumps(reader, attempt)
    flight = analyse_dumps(
        sources,
        _memberships(ranks),
        world,
        hang=_stood_still(manifest),
        complaints=unreadable,
        on_progress=on_progress,
    )
    stacks, complaints = read_sampling(reader.layout.stacks / f"attempt_{attempt}" / "0", root)
    log_folders = sorted(reader.layout.logs.glob(f"*/attempt_{attempt}"))
    key_files = (
        *(t.file for t in flight.evidence.tables.values()),
        *(s.file for s in stacks.values()),
        *(["launcher.json"] if exits else []),
    )
    return Gathered(
        world_size=flight.evidence.world_size,
        manifest=manifest,
        ranks=ranks,
        flight=flight,
        stacks=stacks,
        exits=exits,
        launcher_error=record.error if record else None,
        logs=tuple(e for folder in log_folders for e in read_rank_logs(folder, root)),
        progress=read_progress(reader.layout.signals / f"attempt_{attempt}", root),
        key_files=key_files,
        complaints=(*reader.complaints, *flight.evidence.complaints, *complaints),
    )


def _dumps(reader: BundleReader, attempt: int) -> tuple[list[DumpSource], list[str]]:
    """The attempt's dumps, named as in the bundle."""
    folder = reader.layout.flight_recorder / f"attempt_{attempt}"
    found, complaints = find_dumps([folder]) if folder.is_dir() else ([], [])
    inside = reader.relative(folder)
    named = [
        dataclasses.replace(source, name=f"{inside}/{source.name}")
        for source in found
        if source.name == f"rank_{source.rank}"
    ]
    return named, [f"{inside}/{complaint}" for complaint in complaints]


def _stood_still(manifest: Manifest | None) -> bool | None:
    """Whether whoever collected saw the job standing still; None where nobody says."""
    if manifest is None or manifest.notice is None:
        return None
    return not manifest.notice.startswith(("timeout", "finished"))


def _memberships(ranks: Mapping[int, RankRecord]) -> tuple[Membership, ...]:
    return tuple(
        {
            Membership(group.name, group.description, group.ranks): None
            for record in ranks.values()
            for group in record.groups
        }
    )
