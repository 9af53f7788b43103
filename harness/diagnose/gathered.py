"""All evidence of one bundle's last attempt, read by its rooms and not yet weighed."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.bundle.layout import is_bundle
from harness.bundle.reader import BundleReader
from harness.diagnose.flight.evidence import Membership
from harness.diagnose.flight.room import FlightResult, analyse_dumps
from harness.diagnose.flight.sources import DumpSource, find_dumps
from harness.diagnose.hardware.find import Readings, find_readings, merge_readings
from harness.diagnose.hardware.kernel import KernelEvent, read_kernel_log
from harness.diagnose.hardware.room import HardwareResult, Job, analyse_hardware
from harness.diagnose.launcher.exits import Exits, last_exits
from harness.diagnose.launcher.torchrun_log import block_events, read_torchrun_log
from harness.diagnose.logs.events import LogEvent, read_cancellations, read_rank_logs
from harness.diagnose.logs.read import Reading
from harness.diagnose.logs.room import LogsResult, analyse_logs, weigh_logs
from harness.diagnose.movement import MOVING, stood_s
from harness.diagnose.nodes import Node, merge_nodes, node_names
from harness.diagnose.signals.find import Records, bundle_files, loose_files, read_records
from harness.diagnose.signals.formats.foreign import Foreign
from harness.diagnose.signals.progress import Progress
from harness.diagnose.signals.result import Circumstances, SignalsResult
from harness.diagnose.signals.room import analyse_steps
from harness.diagnose.signals.thresholds import DEFAULTS, Thresholds
from harness.diagnose.stacks.samples import ProcessStacks, RankStacks, read_sampling
from harness.diagnose.stacks.shares import RankShares, read_shares
from harness.diagnose.texts.pool import OnProgress
from harness.model.bundle import Manifest, RankMap, RankRecord


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
    kernel: tuple[KernelEvent, ...] = ()
    resumed: Mapping[int, Progress] = field(default_factory=dict)
    cancelled: tuple[LogEvent, ...] = ()
    has_logs: bool = True
    records: Records = field(default_factory=Records)
    foreign: Foreign = field(default_factory=Foreign)
    shares: Mapping[int, RankShares] = field(default_factory=dict)
    signals: SignalsResult = field(default_factory=SignalsResult)
    text: LogsResult = field(default_factory=LogsResult)
    readings: Readings = field(default_factory=Readings)
    hardware: HardwareResult = field(default_factory=HardwareResult)

    def process(self, rank: int) -> ProcessStacks | None:
        """A rank's own process as it was sampled, None where it was not."""
        return self.stacks[rank].own if rank in self.stacks else None

    @property
    def on_cpus(self) -> bool:
        """Whether the job is known to compute on CPUs only."""
        devices = [r.device for r in self.ranks.values() if r.device]
        backend = self.manifest.backend if self.manifest else None
        return backend == "gloo" and not any(d.startswith("cuda") for d in devices)

    @property
    def still_moving(self) -> bool:
        """The job moved, or was looked at since its time was up: who computes is no culprit."""
        notice = self.manifest.notice if self.manifest else None
        return notice is not None and notice.startswith(("timeout", MOVING))

    @property
    def stood_s(self) -> float | None:
        """How long a job that was started without us is known to have stood; None for any other."""
        return stood_s(self.manifest.notice) if self.manifest else None

    @property
    def records_steps(self) -> bool:
        """Whether ranks write down their steps: no record then means that the first was never completed."""
        ours = self.manifest is None or self.manifest.launcher != "collected"
        return ours or bool(self.progress)

    @property
    def only_records(self) -> bool:
        """Whether there are step records at most: no bundle, no launcher, no dump that would say more."""
        return self.exits is None and self.manifest is None and not self.flight.evidence.tables

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
            or self.text.is_log
            or self.hardware.cards
            or self.hardware.ports
        )


def gather(
    paths: Sequence[Path],
    world_size: int | None,
    on_progress: OnProgress,
    limits: Thresholds = DEFAULTS,
    logs: Reading | None = None,
) -> Gathered:
    """Read a bundle, one bundle a node, or dumps from any number of folders, files and archives.

    `logs`: those under `paths`, where no path is a bundle and somebody began to read them already.
    """
    bundles = [path for path in paths if is_bundle(path)]
    if bundles:
        loose = [path for path in paths if path not in bundles]
        names = node_names(bundles) if len(paths) > 1 else [""]
        nodes = [_read_bundle(path, name) for path, name in zip(bundles, names, strict=True)]
        whole = nodes[0] if len(paths) == 1 else merge_nodes(nodes)
        flown = _with_flight(whole, _loose_dumps(loose), world_size, on_progress)
        text = analyse_logs([*_texts_of(bundles), *loose], flown.world_size or world_size)
        flown = dataclasses.replace(flown, text=text, complaints=(*flown.complaints, *text.complaints))
        return _with_signals(_with_hardware(flown, loose), limits)
    sources, complaints = find_dumps(paths)
    if logs is None:
        text = analyse_logs(paths, world_size, on_progress)
    else:
        text = weigh_logs(logs, world_size, on_progress)
    foreign, readings = text.foreign, find_readings(paths)
    records = read_records(loose_files(paths), foreign.columns)
    flight = analyse_dumps(sources, (), world_size, complaints=complaints, on_progress=on_progress)
    newest = max(records.progress, default=0)
    progress = records.of_attempt(newest)
    gathered = Gathered(
        world_size=max(flight.evidence.world_size, _ranks_in(records, foreign, world_size), _heard(text)),
        manifest=None,
        ranks={},
        flight=flight,
        stacks={},
        exits=None,
        launcher_error=None,
        logs=(),
        progress=progress,
        key_files=(*(t.file for t in flight.evidence.tables.values()), *(p.file for p in progress.values())),
        complaints=(
            *_of_dumps(flight, progress, text, readings),
            *records.complaints,
            *foreign.complaints,
            *text.complaints,
        ),
        records=records,
        foreign=foreign,
        text=text,
        readings=readings,
    )
    return _with_signals(_with_hardware(gathered, ()), limits)


def _texts_of(bundles: Sequence[Path]) -> list[Path]:
    """The logs inside bundles, of ranks and of the launcher.

    The machine's kernel log is read by its own room, which knows the ranks' processes: others die there, too.
    """
    layouts = [BundleReader.at(root).layout for root in bundles]
    places = [place for at in layouts for place in (at.logs, at.launcher_log)]
    return [place for place in places if place.exists()]


def _with_hardware(gathered: Gathered, loose: Sequence[Path]) -> Gathered:
    """What was gathered, with counters of cards and ports joined with the ranks. `loose`: not in bundles."""
    beside = find_readings(loose) if loose else Readings()
    readings = merge_readings((gathered.readings, beside))
    census = gathered.text.story.census if gathered.text.story else None
    job = Job(gathered.ranks, census.rank_of_bus) if census else Job(gathered.ranks)
    hardware = analyse_hardware(readings, gathered.kernel, job)
    complaints = (*gathered.complaints, *hardware.complaints)
    return dataclasses.replace(gathered, readings=readings, hardware=hardware, complaints=complaints)


def _of_dumps(
    flight: FlightResult, progress: Mapping[int, Progress], text: LogsResult, readings: Readings
) -> tuple[str, ...]:
    """Complaints about files that are no dumps: where there are no dumps at all, nobody expected any."""
    other = bool(progress) or text.is_log or bool(readings)
    return () if other and not flight.evidence.tables else flight.evidence.complaints


def _heard(text: LogsResult) -> int:
    """How many ranks logs speak of."""
    return text.story.census.size if text.story else 0


def _ranks_in(records: Records, foreign: Foreign, stated: int | None) -> int:
    """How many ranks step records speak of."""
    ranks = {rank for found in records.progress.values() for rank in found}
    return max(stated or 0, foreign.world_size or 0, max(ranks, default=-1) + 1)


def _with_signals(gathered: Gathered, limits: Thresholds) -> Gathered:
    """What was gathered, with the step records of all attempts weighed."""
    groups = {len(record.groups) for record in gathered.ranks.values()}
    memory = [r.host_memory_bytes for r in gathered.ranks.values() if r.host_memory_bytes]
    around = Circumstances(
        gathered.world_size,
        alike=groups == {1},
        on_cpus=gathered.on_cpus,
        host_bytes=min(memory, default=None),
    )
    signals = analyse_steps(gathered.records.histories, around, gathered.foreign.timers, limits)
    return dataclasses.replace(gathered, signals=signals)


def _loose_dumps(paths: list[Path]) -> tuple[list[DumpSource], list[str]]:
    """Dumps that lie beside the bundles, each named with its folder in front."""
    sources, complaints = find_dumps(paths)
    if len(paths) != 1 or not paths[0].is_dir():
        return sources, complaints
    named = [dataclasses.replace(source, name=f"{paths[0].name}/{source.name}") for source in sources]
    return named, [f"{paths[0].name}/{complaint}" for complaint in complaints]


def _read_bundle(root: Path, name: str) -> Node:
    """Read a bundle but for its dumps. The spec and the injection record stay closed."""
    reader = BundleReader.at(root)
    manifest = reader.manifest()
    host = manifest.host if manifest else None
    record = reader.launcher() or read_torchrun_log(reader.layout.launcher_log, reader.layout.logs)
    exits = last_exits(record)
    rank_map = reader.rank_map()
    attempt = exits.attempt.attempt if exits else max(reader.attempts(), default=_newest(rank_map))
    ranks = {r.rank: r for r in (rank_map.ranks if rank_map else ()) if r.attempt == attempt}
    sources, unreadable = _dumps(reader, attempt)
    stacks, complaints = read_sampling(reader.layout.stacks / f"attempt_{attempt}" / "0", root)
    log_folders = sorted(reader.layout.logs.glob(f"*/attempt_{attempt}"))
    events = tuple(e for folder in log_folders for e in read_rank_logs(folder, root))
    logs = _by_global_rank(events, ranks, reader.complaints)
    records = read_records(bundle_files(reader.layout.signals, root))
    quoted = block_events(reader.layout.launcher_log, root)
    logs = (*logs, *(e for e in quoted if e.rank not in {own.rank for own in logs}))
    gathered = Gathered(
        world_size=(manifest.world_size if manifest else 0) or (rank_map.world_size if rank_map else 0),
        manifest=manifest,
        ranks=ranks,
        flight=analyse_dumps(()),
        stacks=stacks,
        exits=exits,
        launcher_error=record.error if record else None,
        logs=logs,
        has_logs=bool(log_folders),
        progress=records.of_attempt(attempt),
        shares=read_shares(reader.layout.stacks / f"attempt_{attempt}", root),
        records=records,
        key_files=(*(s.file for s in stacks.values()), *(["launcher.json"] if exits else [])),
        complaints=(*reader.complaints, *complaints, *records.complaints),
        kernel=tuple(e for path in _kernel_logs(reader) for e in read_kernel_log(path, root, host)),
        readings=find_readings([root], bundle=root, host=host),
        resumed=records.of_attempt(exits.resumed.attempt) if exits and exits.resumed else {},
        cancelled=read_cancellations(reader.layout.launcher_log, root),
    )
    return Node(name, attempt, gathered, tuple(sources), tuple(unreadable))


def _kernel_logs(reader: BundleReader) -> list[Path]:
    """A bundle's own kernel log, and what people put beside it."""
    root = reader.layout.root
    return [reader.layout.kernel_log, *sorted((*root.glob("dmesg*"), *root.glob("kern.log*")))]


def _with_flight(
    node: Node,
    loose: tuple[list[DumpSource], list[str]],
    world_size: int | None,
    on_progress: OnProgress,
) -> Gathered:
    """What was gathered, with the dumps analysed: the bundle's own and those that lay elsewhere."""
    gathered, complaints = node.gathered, list(node.complaints)
    recorded = gathered.world_size
    if recorded and world_size and recorded != world_size:
        complaints.append(f"the bundle records {recorded} ranks: --world-size {world_size} is ignored")
    flight = analyse_dumps(
        (*node.sources, *loose[0]),
        _memberships(gathered.ranks),
        recorded or world_size,
        hang=_stood_still(gathered.manifest),
        complaints=(*node.unreadable, *loose[1]),
        on_progress=on_progress,
    )
    return dataclasses.replace(
        gathered,
        world_size=flight.evidence.world_size,
        flight=flight,
        key_files=(*(t.file for t in flight.evidence.tables.values()), *gathered.key_files),
        complaints=(*complaints, *gathered.complaints, *flight.evidence.complaints),
    )


def _newest(rank_map: RankMap | None) -> int:
    return max((record.attempt for record in rank_map.ranks), default=0) if rank_map else 0


def _by_global_rank(
    logs: tuple[LogEvent, ...], ranks: Mapping[int, RankRecord], complaints: list[str]
) -> tuple[LogEvent, ...]:
    """torchrun names its log folders after local ranks: which ranks these are, ranks.json says."""
    if not ranks or not logs:
        return logs
    shifts = {record.rank - record.local_rank for record in ranks.values()}
    if len(shifts) == 1:
        # One agent: a rank that never registered is where its sisters say that it must be.
        (shift,) = shifts
        return tuple(dataclasses.replace(event, rank=event.rank + shift) for event in logs)
    rank_of = {record.local_rank: rank for rank, record in ranks.items()}
    if len(rank_of) < len(ranks):
        complaints.append("logs: of several agents on one machine, which rank wrote which is not known")
        return ()
    return tuple(dataclasses.replace(e, rank=rank_of[e.rank]) for e in logs if e.rank in rank_of)


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
    if manifest.notice.startswith("collect:") and not manifest.notice.startswith(MOVING):
        # Main threads that rest for some seconds prove no hang: the clocks in the dumps say how long.
        return None
    return not manifest.notice.startswith(("timeout", "finished", MOVING))


def _memberships(ranks: Mapping[int, RankRecord]) -> tuple[Membership, ...]:
    return tuple(
        {
            Membership(group.name, group.description, group.ranks): None
            for record in ranks.values()
            for group in record.groups
        }
    )
