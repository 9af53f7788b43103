"""Versions and variables as a manifest states them: those that decide what evidence there is, no secrets."""

import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata

from harness import __version__

_PREFIXES = ("TORCH_", "NCCL_", "GLOO_", "TORCHELASTIC_", "OMP_NUM_THREADS", "CUDA_VISIBLE")


def relevant_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that decide what a run leaves behind."""
    return {name: value for name, value in environ.items() if name.startswith(_PREFIXES)}


def versions() -> dict[str, str]:
    """Versions of this package and of what its evidence comes from."""
    found = {"drill-harness": __version__, "python": platform.python_version()}
    for name in ("torch", "py-spy"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
