"""Large logs are read by other processes while this one still loads what weighs them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from harness.bundle.layout import is_bundle
from harness.diagnose.logs.wanted import WANTED
from harness.diagnose.texts.globs import is_glob
from harness.diagnose.texts.patterns import database_of

if TYPE_CHECKING:
    from harness.diagnose.logs.read import Reading


def logs_ahead(paths: Sequence[Path]) -> "AbstractContextManager[Reading | None]":
    """Begin to read the logs under `paths`, for `diagnose` of the same paths.

    None where a path is a bundle, whose logs are found otherwise, or does not exist.
    """
    if any(is_bundle(path) or not (path.exists() or is_glob(path)) for path in paths):
        return nullcontext()
    database_of(WANTED).begin()
    # Loaded while another core compiles the patterns.
    from harness.diagnose.logs.read import reading

    return reading(paths)
