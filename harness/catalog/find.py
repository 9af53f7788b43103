"""Where drills are: the built-in ones, ``./drills``, and every ``--drills-dir``."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from harness.catalog.schema import read_drill
from harness.model.errors import UsageError
from harness.model.spec import DrillSpec


def builtin(kind: str) -> Path:
    """The folder of built-in drills or checklists: in the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "builtin" / kind
    return packed if packed.is_dir() else package.parent / kind


def drill_files(extra: Sequence[Path] = ()) -> dict[str, Path]:
    """Every drill's YAML by name.

    Raises:
        UsageError: a folder does not exist, or two different files have one name.
    """
    here = Path("drills")
    for folder in extra:
        if not folder.is_dir():
            raise UsageError(f"--drills-dir {folder}: not a folder")
    found: dict[str, Path] = {}
    for folder in (builtin("drills"), *([here] if here.is_dir() else []), *extra):
        for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
            known = found.setdefault(path.stem, path)
            if not _same(known, path):
                raise UsageError(f"two drills are called '{path.stem}': {known} and {path}")
    return found


def find_drill(name: str, extra: Sequence[Path] = ()) -> DrillSpec:
    """One drill by name.

    Raises:
        UsageError: no such drill, or its file does not validate.
    """
    files = drill_files(extra)
    if name not in files:
        close = difflib.get_close_matches(name, files, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"no drill is called '{name}'.{hint} There are: {', '.join(sorted(files))}")
    return read_drill(files[name])


def all_drills(extra: Sequence[Path] = ()) -> list[DrillSpec]:
    """Every drill, by name."""
    return [read_drill(path) for _, path in sorted(drill_files(extra).items())]


def _same(a: Path, b: Path) -> bool:
    """The same file, or a copy of it: a checkout's drills/ beside the installed ones."""
    if a.samefile(b):
        return True
    twins = [(a, b), (a.with_suffix(".py"), b.with_suffix(".py"))]
    return all(x.is_file() and y.is_file() and x.read_bytes() == y.read_bytes() for x, y in twins)
