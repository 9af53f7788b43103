"""Writing a case's files into a folder."""

from collections.abc import Mapping
from pathlib import Path


def write(files: Mapping[str, bytes], folder: Path) -> Path:
    """Write each file below `folder`, in the order given; returns the folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
