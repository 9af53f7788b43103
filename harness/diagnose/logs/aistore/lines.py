"""Lines of a log of any size, plain or gzipped, in bounded memory."""

import zlib
from collections.abc import Iterator
from pathlib import Path

from harness.diagnose.texts.unpack import MAGIC, Gunzip

CHUNK_BYTES = 256 << 10
MAX_LINE_BYTES = 64 << 10
"""What of one line is kept; the rest of a longer line is passed over."""

MAX_PLAIN_BYTES = 16 << 30
"""What a gzipped log may unpack to; more is no log."""

UNREADABLE = (OSError, EOFError, zlib.error)


def read_lines(path: Path) -> Iterator[list[bytes]]:
    """All lines without their ends, some hundred KiB at a time, the last one also if the file ends inside it.

    Raises: OSError, EOFError, zlib.error, after all lines that stand before the damage.
    """
    if not path.is_file():
        raise OSError("not a regular file")
    with path.open("rb") as file:
        packed = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        read = Gunzip(file).read if packed else file.read
        rest, size, cutting = b"", 0, False
        while True:
            try:
                data = read(CHUNK_BYTES)
                size += len(data)
                if packed and size > MAX_PLAIN_BYTES:
                    raise OSError(f"unpacks to more than {MAX_PLAIN_BYTES >> 30} GiB: the rest is left out")
            except UNREADABLE:
                if rest:
                    yield [rest]
                raise
            if not data:
                if rest:
                    yield [rest]
                return
            lines = data.split(b"\n")
            # Of a line that is being cut the beginning is held in `rest`; what follows is passed over.
            lines[0] = rest if cutting else rest + lines[0]
            rest = lines.pop()
            cutting = cutting and not lines
            if lines:
                yield [line[:MAX_LINE_BYTES] for line in lines]
            if len(rest) > MAX_LINE_BYTES:
                rest, cutting = rest[:MAX_LINE_BYTES], True
