"""Bundles made small and without names, to be taken away from the machine that made them."""

import json
import pickle
import platform
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import psutil

from harness.diagnose.flight.load import NotADump, load_dump

TOTAL_BYTES = 16 << 20
"""All archives together."""

MAX_LOG_BYTES = 512 << 10
"""Of a longer log its beginning and its end are kept: what happened first, and how it ended."""

_LEFT_OUT = ("live", "checkpoints")
_EXTRA = ("memory", "kernel.log")
"""What goes first where space is short."""

_LEAST_NAME = 4
"""Shorter host names are words of the text itself."""


def host_names() -> dict[str, str]:
    """This machine's names and addresses, and what stands in their place; the longest first."""
    names = {platform.node(), socket.gethostname()}
    with suppress(OSError):
        names.add(socket.getfqdn())
    names |= {name.split(".")[0] for name in names}
    found = {n: "node" for n in names if len(n) >= _LEAST_NAME and not n.startswith("localhost")}
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.address not in ("127.0.0.1", "::1"):
                found[one.address.split("%")[0]] = "address"
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def pack(bundle: Path, archive: Path, names: Mapping[str, str], extras: bool = True) -> int:
    """Write a bundle as ``bundle/`` into a .tar.gz. Returns its size in bytes.

    `extras`: with memory snapshots and the kernel log.
    """
    files = [
        path
        for path in sorted(bundle.rglob("*"))
        if path.is_file() and not _is_in(path.relative_to(bundle), (*_LEFT_OUT, *(() if extras else _EXTRA)))
    ]
    with tarfile.open(archive, "w:gz") as tar:
        for path in files:
            relative = path.relative_to(bundle)
            data = cleaned(path.read_bytes(), relative, names)
            if data is None:
                continue
            entry = tarfile.TarInfo(f"bundle/{relative}")
            entry.size, entry.mtime, entry.mode = len(data), int(path.stat().st_mtime), 0o644
            tar.addfile(entry, BytesIO(data))
    return archive.stat().st_size


def _is_in(path: Path, folders: Iterable[str]) -> bool:
    return path.parts[0] in folders


def cleaned(data: bytes, path: Path, names: Mapping[str, str]) -> bytes | None:
    """A file's bytes without names; None where it cannot be cleaned of them and is left out."""
    if path.parts[0] == "logs" and len(data) > 2 * MAX_LOG_BYTES:
        data = data[:MAX_LOG_BYTES] + b"\n...\n" + data[-MAX_LOG_BYTES:]
    if not any(name.encode() in data for name in names):
        return data
    if path.parts[0] == "memory":
        return None
    if path.parts[0] == "flight_recorder":
        with suppress(NotADump):
            return pickle.dumps(_replaced(load_dump(data), names), protocol=2)
        return None
    for old, new in names.items():
        data = data.replace(old.encode(), new.encode())
    return data


def _replaced(value: object, names: Mapping[str, str]) -> object:
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, dict):
        return {_replaced(key, names): _replaced(inner, names) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(inner, names) for inner in value)
    return value


@dataclass
class Packer:
    """Packs bundles into `folder` as they come, the most valuable first, all together under the limit."""

    folder: Path
    limit_bytes: int = TOTAL_BYTES
    names: Mapping[str, str] = field(default_factory=host_names)
    used_bytes: int = 0

    def add(self, name: str, bundle: Path) -> tuple[int | None, str | None]:
        """Pack one. Returns the size of its archive, or why there is none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        left = self.limit_bytes - self.used_bytes
        with tempfile.TemporaryDirectory(prefix="drill-pack-") as scratch:
            archive = Path(scratch) / "one.tar.gz"
            size = pack(bundle, archive, self.names)
            if size > left:
                size = pack(bundle, archive, self.names, extras=False)
            if size > left:
                return None, f"{size / (1 << 20):.1f} MiB, and {left / (1 << 20):.1f} MiB are left"
            shutil.copyfile(archive, self.folder / f"{name}.tar.gz")
        self.used_bytes += size
        return size, None


def without_names(document: object) -> object:
    """A JSON document without this machine's names."""
    text = json.dumps(document)
    for old, new in host_names().items():
        text = text.replace(old, new)
    return json.loads(text)
