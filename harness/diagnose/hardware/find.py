"""Finding counters of hardware among any files, by what is in them."""

import contextlib
import dataclasses
import glob
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.diagnose.hardware.dcgm import is_dcgm, read_dcgm
from harness.diagnose.hardware.fabric import is_fabric, is_tree_file, read_fabric, read_tree
from harness.diagnose.hardware.fields import Told, reasons_of
from harness.diagnose.hardware.reading import Card, CardReading, PortReading
from harness.diagnose.hardware.smi import NotReadable, is_smi_text, is_smi_xml, read_smi_text, read_smi_xml
from harness.diagnose.logs.census import short_bus
from harness.diagnose.texts.archives import Unpacking, is_archive
from harness.diagnose.texts.globs import is_glob
from harness.diagnose.texts.unpack import UNREADABLE, decoded, filled, open_regular, reader

HEAD_BYTES = 8 << 10
MAX_BYTES = 64 << 20
MAX_ARCHIVE_BYTES = 64 << 20
"""Archives that are larger hold logs and dumps; reports of cards take a few megabytes at most."""

_ELSEWHERE = frozenset(("logs", "stacks", "signals", "flight_recorder", "live", "memory"))
"""Folders of a bundle that hold other evidence."""

_OTHERS = frozenset((".py", ".md", ".html", ".pickle", ".pkl", ".jsonl", ".yaml", ".yml", ".toml", ".pt"))

_CARDS: tuple[tuple[Callable[[str], bool], Callable[[str, str], list[CardReading]]], ...] = (
    (is_smi_xml, read_smi_xml),
    (is_smi_text, read_smi_text),
    (is_dcgm, read_dcgm),
)


@dataclass
class Readings:
    """Everything that was read, and one complaint for each file of a known kind that cannot be."""

    cards: list[CardReading] = field(default_factory=list)
    ports: list[PortReading] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.cards or self.ports or self.complaints)


def find_readings(paths: Sequence[Path], bundle: Path | None = None, host: str | None = None) -> Readings:
    """Read all counters under `paths`. `bundle`: names are relative to it; `host`: whose they are."""
    found = Readings()
    with tempfile.TemporaryDirectory(prefix="drill-hardware-") as scratch:
        for path in paths:
            for name, file in _files(path, Path(scratch), bundle, len(paths) > 1):
                with contextlib.suppress(*UNREADABLE):
                    _look(name, file, found)
        for path in paths:
            _trees(path, found, bundle)
    found.cards = [dataclasses.replace(r, card=_at(r.card, host)) for r in found.cards]
    found.ports = [dataclasses.replace(r, host=r.host or host) for r in found.ports]
    return found


def merge_readings(parts: Sequence[Readings], folders: Sequence[str] = ()) -> Readings:
    """Readings of several places as one; `folders`: what goes before the files of each."""
    merged = Readings()
    for number, part in enumerate(parts):
        prefix = f"{folders[number]}/" if folders else ""
        merged.cards += [dataclasses.replace(r, file=prefix + r.file) for r in part.cards]
        merged.ports += [dataclasses.replace(r, file=prefix + r.file) for r in part.ports]
        merged.complaints += [prefix + line for line in part.complaints]
    return merged


def _at(card: Card, host: str | None) -> Card:
    return dataclasses.replace(card, host=card.host or host)


def _files(path: Path, scratch: Path, bundle: Path | None, several: bool) -> Iterator[tuple[str, Path]]:
    """Files and members of archives, with the names under which they are cited."""
    given = [path]
    if is_glob(path) and not path.exists():
        given = [Path(one) for one in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
    for one in given:
        inside = one.is_dir()
        root = bundle or (one if inside else one.parent)
        prefix = f"{one.name}/" if several and inside and bundle is None else ""
        for file in _walk(one):
            name = prefix + str(file.relative_to(root))
            try:
                archive = is_archive(file, file.name)
                too_large = archive and file.stat().st_size > MAX_ARCHIVE_BYTES
            except UNREADABLE:
                # Pipes, devices, what may not be read: others say so.
                continue
            if not archive:
                yield name, file
            elif not too_large:
                members = Unpacking(scratch, is_hardware).members(file, name, [])
                yield from ((member.name, member.path) for member in members)


def _walk(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if path.exists():
            yield path
        return
    with contextlib.suppress(OSError):
        for entry in sorted(path.iterdir()):
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if entry.is_dir():
                if entry.name not in _ELSEWHERE:
                    yield from _walk(entry)
            elif entry.suffix.lower() not in _OTHERS:
                yield entry


def is_hardware(head: bytes) -> bool:
    """Whether a file's first bytes are those of a report on cards or ports."""
    text = head[:HEAD_BYTES].decode(errors="replace")
    return any(is_it(text) for is_it, _ in _CARDS) or is_fabric(text) or '"drill/gpus/1"' in text


def _look(name: str, file: Path, found: Readings) -> None:
    """Take what a file says, if it is of a kind that is known here."""
    with open_regular(file) as opened:
        read = decoded(reader(opened))
        head = filled(read, HEAD_BYTES)[0]
        text = head.decode(errors="replace")
        kind = next((parse for is_it, parse in _CARDS if is_it(text)), None)
        ours = '"drill/gpus/1"' in text or (file.name == "gpu.json" and '"gpus"' in text)
        if kind is None and not ours and not is_fabric(text):
            return
        text = (head + filled(read, MAX_BYTES)[0]).decode(errors="replace")
    order = file.stat().st_mtime
    try:
        if kind is not None:
            found.cards += [dataclasses.replace(r, order=order) for r in kind(text, name)]
        elif ours:
            found.cards += [dataclasses.replace(r, order=order) for r in _read_gpu_json(text, name)]
        else:
            found.ports += [dataclasses.replace(r, order=order) for r in read_fabric(text, name)]
    except NotReadable as error:
        found.complaints.append(f"{name}: {error}")


def _trees(path: Path, found: Readings, bundle: Path | None) -> None:
    """Copied trees of /sys/class/infiniband: a file a counter."""
    if not path.is_dir():
        return
    trees: dict[Path, list[Path]] = {}
    for file in _walk(path):
        if is_tree_file(str(file)):
            top = next(p for p in file.parents if p.name == "infiniband")
            trees.setdefault(top, []).append(file)
    for top, files in trees.items():
        contents = []
        for file in files:
            with contextlib.suppress(OSError):
                contents.append((str(file), file.read_text(errors="replace")[:200].strip()))
        name = str(top.relative_to(bundle or path)) if top != path else top.name
        try:
            order = max(file.stat().st_mtime for file in files)
            found.ports += [dataclasses.replace(r, order=order) for r in read_tree(contents, name)]
        except (NotReadable, OSError) as error:
            found.complaints.append(f"{name}: {error}")


_CSV = {
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "clocks.sm": "sm_clock_mhz",
    "utilization.gpu": "gpu_util",
    "memory.used": "fb_used_mib",
    "memory.total": "fb_total_mib",
    "ecc.errors.corrected.volatile.total": "ecc_sbe",
    "ecc.errors.uncorrected.volatile.total": "ecc_dbe",
}


def _read_gpu_json(text: str, name: str) -> list[CardReading]:
    """What `drill collect` saves of nvidia-smi's tables.

    Raises:
        NotReadable: it is not whole.
    """
    try:
        document = json.loads(text)
        rows = document["gpus"]
        pids = {int(pid): uuid for pid, uuid in document.get("processes", {}).items()}
        return [_csv_row(row, pids, name) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotReadable("not whole: cut off?") from None


def _csv_row(row: dict[str, str], pids: dict[int, str], name: str) -> CardReading:
    told = Told()
    for key, ours in _CSV.items():
        with contextlib.suppress(ValueError, KeyError):
            told.add(ours, float(row[key]), 1)
    pending = row.get("remapped_rows.pending", "").lower()
    if pending in ("yes", "no", "0", "1"):
        told.add("remap_pending", float(pending in ("yes", "1")), 1)
    with contextlib.suppress(ValueError):
        for reason in reasons_of(int(row.get("clocks_throttle_reasons.active", "0"), 16)):
            told.reason(reason, 1)
    index, bus = row.get("index", ""), row.get("pci.bus_id")
    card = Card(
        index=int(index) if index.isdigit() else None,
        uuid=row.get("uuid"),
        bus=short_bus(bus) if bus else None,
        name=row.get("name"),
    )
    own = tuple(pid for pid, uuid in pids.items() if uuid == card.uuid)
    return CardReading(card, name, told.values, {}, throttle=frozenset(told.throttle), pids=own)
