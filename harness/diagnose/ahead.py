"""Large logs are read by other processes while this one still loads what weighs them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from harness.bundle.layout import is_bundle
from harness.diagnose.logs.read import Reading, reading
from harness.diagnose.texts.globs import is_glob


def logs_ahead(paths: Sequence[Path]) -> AbstractContextManager[Reading | None]:
    """Begin to read the logs under `paths`, for `diagnose` of the same paths.

    None where a path is a bundle, whose logs are found otherwise, or does not exist.
    """
    loose = all(not is_bundle(path) and (path.exists() or is_glob(path)) for path in paths)
    return reading(paths) if loose else nullcontext()
