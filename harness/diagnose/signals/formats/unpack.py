"""Reading gzip as far as it goes: a job that was killed leaves a log that is cut off."""

import zlib
from typing import BinaryIO

MAGIC = b"\x1f\x8b\x08"
CHUNK_BYTES = 64 << 10
"""Packed bytes read at once; what a damaged chunk held is lost."""

_GZIP_WINDOW = 31


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
