"""A new drill from templates: its YAML, its script, and its test, which pass as they are."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.resources import files
from pathlib import Path

from harness.catalog.find import drill_files
from harness.model.errors import PrerequisiteError, UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TEMPLATES = {
    "drill.yaml.tmpl": "drills/@NAME@.yaml",
    "drill.py.tmpl": "drills/@NAME@.py",
    "test_drill.py.tmpl": "tests/test_drill_@NAME@.py",
}


def new_drill(name: str) -> tuple[Path, ...]:
    """Write ``drills/NAME.yaml``, ``drills/NAME.py`` and ``tests/test_drill_NAME.py``. Returns their paths.

    Raises:
        UsageError: the name cannot be a drill's, or one of the files is there already.
        PrerequisiteError: a file cannot be written; none is left.
    """
    _check_name(name)
    texts = {Path(path.replace("@NAME@", name)): _filled(source, name) for source, path in _TEMPLATES.items()}
    for path in texts:
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path} is there already: nothing was written; give another name")
    known = drill_files().get(name)
    if known is not None:
        raise UsageError(f"a drill is called '{name}' already: {known}; give another name")
    _write(texts)
    return tuple(texts)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot be a drill's name: lower-case letters, digits and _ are allowed, first a letter"
        )
    # The script's folder comes first where its imports are looked up.
    if name in sys.stdlib_module_names or _importable(name):
        raise UsageError(f"'{name}' is a Python module: drills/{name}.py would hide it from its own imports")


def _importable(name: str) -> bool:
    spec: ModuleSpec | None = None
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def _filled(template: str, name: str) -> str:
    source = files("harness.catalog") / "templates" / template
    return source.read_text(encoding="utf-8").replace("@NAME@", name)


def _write(texts: Mapping[Path, str]) -> None:
    """All of the files or none."""
    written: list[Path] = []
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path_left in written:
            path_left.unlink(missing_ok=True)
        raise PrerequisiteError(f"{path}: {error.strerror}") from None
