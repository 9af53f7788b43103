"""Patterns that a shell left unexpanded."""

from pathlib import Path


def is_glob(path: Path) -> bool:
    """Whether a path that need not exist stands for others."""
    return any(c in str(path) for c in "*?[")
