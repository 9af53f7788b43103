"""Reading packed files as far as they go: a job that was killed leaves a log that is cut off."""

import bz2
import codecs
import lzma
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

MAGIC = b"\x1f\x8b\x08"
CHUNK_BYTES = 64 << 10
"""Packed bytes read at once; what a damaged chunk held is lost."""

UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a damaged file raises; a broken one yields what stands before the break first."""

_GZIP_WINDOW = 31
_BZ2_MAGIC = b"BZh"
_BZ2_BLOCK = b"1AY&SY"
_XZ_MAGIC = b"\xfd7zXZ\x00"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_XZ_MEMORY_BYTES = 128 << 20
"""What the strongest usual settings need, and no more: a file can ask for gigabytes."""


class Reader(Protocol):
    """The next bytes, up to so many; none at the end."""

    def __call__(self, size: int, /) -> bytes: ...


class Gunzip:
    """Unpacks a gzipped file of one or more members, piece by piece."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._member = zlib.decompressobj(_GZIP_WINDOW)

    def read(self, size: int) -> bytes:
        """The next bytes, up to `size`; none at the end.

        Raises, after all that stands before: EOFError where the file is cut off, zlib.error for damage.
        """
        while True:
            if self._member.eof:
                packed = self._member.unused_data or self._file.read(CHUNK_BYTES)
                if not packed.startswith(MAGIC):
                    return b""
                self._member = zlib.decompressobj(_GZIP_WINDOW)
            else:
                packed = self._member.unconsumed_tail or self._file.read(CHUNK_BYTES)
                if not packed:
                    raise EOFError("the gzipped file is cut off")
            if data := self._member.decompress(packed, size):
                return data


class _Unpack:
    """Unpacks bzip2 or xz, of one or more streams, piece by piece."""

    def __init__(
        self,
        file: BinaryIO,
        magic: bytes,
        begin: Callable[[], "bz2.BZ2Decompressor | lzma.LZMADecompressor"],
    ) -> None:
        self._file, self._magic, self._begin = file, magic, begin
        self._stream = begin()

    def read(self, size: int) -> bytes:
        """The next bytes, up to `size`; none at the end. Raises: UNREADABLE, after all that stands before."""
        while True:
            packed = b""
            if self._stream.eof:
                packed = self._stream.unused_data or self._file.read(CHUNK_BYTES)
                if not packed.startswith(self._magic):
                    return b""
                self._stream = self._begin()
            elif self._stream.needs_input:
                packed = self._file.read(CHUNK_BYTES)
                if not packed:
                    raise EOFError("the packed file is cut off")
            if data := self._stream.decompress(packed, size):
                return data


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, unbuffered; anything else is never opened, since a pipe would wait for ever.

    Raises: OSError.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("not a regular file")
    return path.open("rb", buffering=0)


def reader(opened: BinaryIO) -> Reader:
    """Reads a file that was just opened, unpacked if it is gzip, bzip2 or xz."""
    magic = _magic(opened)
    if magic.startswith(MAGIC):
        return Gunzip(opened).read
    if _is_bz2(magic):
        return _Unpack(opened, _BZ2_MAGIC, bz2.BZ2Decompressor).read
    if magic.startswith(_XZ_MAGIC):
        return _Unpack(
            opened, _XZ_MAGIC, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
        ).read
    return opened.read


def is_plain(opened: BinaryIO) -> bool:
    """Whether a file that was just opened is read as it lies: neither packed nor UTF-16."""
    magic = _magic(opened)
    return not (is_packed(magic) or magic.startswith(_UTF16))


def is_packed(head: bytes) -> bool:
    """Whether first bytes are those of a gzip, bzip2 or xz file."""
    return head.startswith((MAGIC, _XZ_MAGIC)) or _is_bz2(head)


def _magic(opened: BinaryIO) -> bytes:
    magic = opened.read(len(_BZ2_MAGIC) + 1 + len(_BZ2_BLOCK))
    opened.seek(0)
    return magic


def _is_bz2(head: bytes) -> bool:
    return head.startswith(_BZ2_MAGIC) and head[4:].startswith(_BZ2_BLOCK)


def decoded(read: Reader) -> Reader:
    """Reads UTF-16 (a log that PowerShell redirected) as UTF-8, anything else as it is."""
    first = read(2)
    if first not in _UTF16:
        held = [first]
        return lambda size: held.pop() or read(size) if held else read(size)
    decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    decoder.decode(first)

    def decode(size: int) -> bytes:
        # One character may be cut off by the end of what was read: that is not the end of the file.
        while data := read(size):
            if text := decoder.decode(data):
                return text.encode(errors="replace")
        return b""

    return decode


def filled(read: Reader, size: int) -> tuple[bytes, BaseException | None]:
    """As many bytes as there are, up to `size`, and what broke the reading; fewer: nothing comes after."""
    parts, have = list[bytes](), 0
    while have < size:
        try:
            data = read(size - have)
        except UNREADABLE as error:
            return b"".join(parts), error
        if not data:
            break
        parts.append(data)
        have += len(data)
    return b"".join(parts), None


def reason(error: BaseException) -> str:
    """One phrase for a complaint."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
