"""Taking the members of archives out, safely: under numbers for names, and with bounds."""

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.diagnose.texts.sniff import HEAD_BYTES, SPANS, TEXT, sniff
from harness.diagnose.texts.unpack import UNREADABLE, Reader, filled, is_packed, open_regular, reader, reason

MAX_MEMBERS = 1 << 16
MAX_DEPTH = 3
MAX_BYTES = 64 << 30
"""What is taken out of all archives together; never more than half of what is free on the disk."""

MAX_HEADER_BYTES = 1 << 20
"""tarfile reads the header of a member in one go, and the header says how long it is."""

BROKEN = (
    *UNREADABLE,
    tarfile.TarError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""What damaged, foreign or encrypted archives make the standard library raise."""

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")
_NOT_ARCHIVES = (".pt", ".pth", ".bin", ".ckpt", ".distcp", ".npz", ".whl", ".jar", ".nemo", ".pkl", ".json")
"""zip or tar inside, and no logs in them."""

_CHUNK_BYTES = 1 << 20
_ZIP_MAGIC = b"PK\x03\x04"


@dataclass(frozen=True)
class Member:
    """A file that was in an archive, and where it is now. `name` begins with the archive's."""

    name: str
    path: Path


def is_archive(file: Path, name: str) -> bool:
    """Whether a file is to be unpacked: by its content, or its name. Raises: UNREADABLE."""
    lower = name.lower()
    if lower.endswith(_NOT_ARCHIVES):
        return False
    if lower.endswith((*_TARS, ".zip")):
        return True
    with open_regular(file) as opened:
        if opened.read(4) == _ZIP_MAGIC:
            return zipfile.is_zipfile(opened)
        opened.seek(0)
        head, _ = filled(reader(opened), tarfile.BLOCKSIZE)
    return _begins_tar(head)


class Unpacking:
    """Takes the texts out of archives into one folder, or whatever else is `wanted` by its first bytes."""

    def __init__(self, scratch: Path, wanted: Callable[[bytes], bool] | None = None) -> None:
        self._scratch = scratch
        self._wanted = wanted or _is_text
        self._members = self._files = 0
        self._left: int | None = None

    def members(self, file: Path, name: str, complaints: list[str], depth: int = 1) -> Iterator[Member]:
        """The texts in an archive, and in those in it; a line of complaint for what cannot be read."""
        try:
            for inner, path in self._opened(file, name, complaints):
                base = inner.rpartition("/")[2]
                if not is_archive(path, base):
                    yield Member(inner, path)
                elif depth < MAX_DEPTH:
                    yield from self.members(path, inner, complaints, depth + 1)
                    path.unlink()
                else:
                    complaints.append(f"{inner}: an archive more than {MAX_DEPTH} deep is left")
        except BROKEN as error:
            complaints.append(f"{name}: {reason(error)}")

    def _opened(self, file: Path, name: str, complaints: list[str]) -> Iterator[tuple[str, Path]]:
        with open_regular(file) as opened:
            if opened.read(4).startswith(b"PK"):
                opened.seek(0)
                yield from self._zip(opened, name, complaints)
            else:
                opened.seek(0)
                yield from self._tar(_Forward(reader(opened)), name, complaints)

    def _tar(self, stream: "_Forward", name: str, complaints: list[str]) -> Iterator[tuple[str, Path]]:
        with tarfile.open(fileobj=stream, mode="r:") as archive:  # type: ignore[call-overload]
            for member in archive:
                if not self._counted(name, complaints):
                    return
                # The list of all members is of no use here, and may be long.
                archive.members = []
                if not member.isfile():
                    continue
                # tarfile's own reading loses what stands before a damage, but knows where holes are.
                read = stream.part(member.offset_data, member.size)
                if member.issparse() and (content := archive.extractfile(member)):
                    read = content.read
                yield from self._kept(_joined(name, member.name), read, complaints)
        if stream.error is not None:
            raise stream.error

    def _zip(self, opened: BinaryIO, name: str, complaints: list[str]) -> Iterator[tuple[str, Path]]:
        with zipfile.ZipFile(opened) as archive:
            for member in archive.infolist():
                if not self._counted(name, complaints):
                    return
                # The upper half are Unix modes: links and devices are no files.
                if member.is_dir() or (member.external_attr >> 28) not in (0, 8):
                    continue
                inner = _joined(name, member.filename)
                try:
                    with archive.open(member) as content:
                        yield from self._kept(inner, content.read, complaints)
                except BROKEN as error:
                    complaints.append(f"{inner}: {reason(error)}")

    def _kept(self, inner: str, read: Reader, complaints: list[str]) -> Iterator[tuple[str, Path]]:
        """Write a member down if it may be a text or an archive; nothing else is read beyond its head."""
        head, error = filled(read, HEAD_BYTES)
        if not _may_be(self._wanted, head, inner):
            return
        self._files += 1
        path = self._scratch / str(self._files)
        with path.open("wb") as file:
            while head and self._room(len(head)):
                file.write(head)
                if error is not None:
                    break
                head, error = filled(read, _CHUNK_BYTES)
        if head and error is None:
            complaints.append(f"{inner}: too large to be unpacked: the rest is left out")
        yield inner, path
        if error is not None:
            complaints.append(f"{inner}: {reason(error)}")

    def _counted(self, name: str, complaints: list[str]) -> bool:
        self._members += 1
        if self._members == MAX_MEMBERS + 1:
            complaints.append(f"{name}: more than {MAX_MEMBERS} members: the rest is left out")
        return self._members <= MAX_MEMBERS

    def _room(self, size: int) -> bool:
        if self._left is None:
            self._left = min(MAX_BYTES, shutil.disk_usage(self._scratch).free // 2)
        self._left -= size
        return self._left >= 0


def _joined(archive: str, member: str) -> str:
    """A name for people only: it is never a path."""
    parts = [part for part in member.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join((archive, *parts))


def _is_text(head: bytes) -> bool:
    return sniff(head) in (TEXT, SPANS)


def _may_be(wanted: Callable[[bytes], bool], head: bytes, name: str) -> bool:
    """Whether a member may be what is wanted, or hold it."""
    return (
        head.startswith((_ZIP_MAGIC, b"\0"))
        or is_packed(head)
        or _begins_tar(head)
        or name.lower().endswith((*_TARS, ".zip"))
        or wanted(head)
    )


def _begins_tar(head: bytes) -> bool:
    if head[257:262] != b"ustar":
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


class _Forward:
    """A stream as a file that can be sought forward, for tarfile; the end where the damage is."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._at = 0
        self.error: BaseException | None = None

    def read(self, size: int) -> bytes:
        """The next bytes, up to `size`, fewer at the end."""
        if not 0 <= size <= max(MAX_HEADER_BYTES, _CHUNK_BYTES):
            raise OSError("a header that is too long")
        data = b""
        if self.error is None:
            data, self.error = filled(self._read, size)
            self._at += len(data)
        return data

    def seek(self, position: int) -> int:
        """Read on to a position."""
        while self._at < position:
            if not self.read(min(position - self._at, _CHUNK_BYTES)):
                break
        return self._at

    def tell(self) -> int:
        return self._at

    def part(self, begin: int, size: int) -> Reader:
        """Reads a part that lies ahead, and no more."""
        self.seek(begin)

        def read(wanted: int) -> bytes:
            return self.read(min(wanted, begin + size - self._at, _CHUNK_BYTES))

        return read
