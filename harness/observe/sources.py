"""The text of the lines that a stack shows: calls of native functions leave no frame of their own."""

import linecache
from pathlib import Path
from typing import Any

MAX_FRAMES = 16
MAX_CHARS = 160


def with_sources(pid: int, threads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """py-spy's threads with `source` added to each thread's innermost frames, where the file can be read.

    Files are looked for as process `pid` sees them: it may live in a container.
    """
    root = Path(f"/proc/{pid}/root")
    for thread in threads:
        for frame in thread.get("frames", ())[:MAX_FRAMES]:
            text = _line(root, str(frame.get("filename")), frame.get("line"))
            if text:
                frame["source"] = text
    return threads


def _line(root: Path, filename: str, line: object) -> str | None:
    if not isinstance(line, int) or not filename.startswith("/"):
        return None
    text = linecache.getline(f"{root}{filename}", line) or linecache.getline(filename, line)
    return text.rstrip()[:MAX_CHARS] or None
