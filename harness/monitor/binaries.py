"""Where Prometheus and Alertmanager are: a given folder, PATH, or the folder that ci/ fetches them into."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.model.errors import PrerequisiteError

FETCHED = Path(sys.prefix) / "monitoring" / "usr" / "bin"
"""Where `ci/install_monitoring.sh` puts them beside a virtual environment."""

INSTALL = f"ci/install_monitoring.sh {Path(sys.prefix) / 'monitoring'}"

_NAMES = {
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
    # Debian's Alertmanager has a longer name.
    "alertmanager": ("alertmanager", "prometheus-alertmanager"),
    "amtool": ("amtool",),
}


@dataclass(frozen=True)
class Binaries:
    """The four programs."""

    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path


def find_binaries(folder: Path | None = None) -> Binaries:
    """Look into `folder` if one is given, then PATH, then the folder of the fetched packages.

    Raises:
        PrerequisiteError: one is missing: which, where it was looked for, what fetches it.
    """
    found: dict[str, Path] = {}
    for program, names in _NAMES.items():
        path = _find(names, folder)
        if path is None:
            places = ", ".join([*([str(folder)] if folder else []), "PATH", str(FETCHED)])
            raise PrerequisiteError(
                f"{program} is not there (looked in {places}): fetch it with {INSTALL},"
                " or say where it is with --bin-dir"
            )
        found[program] = path
    return Binaries(**found)


def _find(names: tuple[str, ...], folder: Path | None) -> Path | None:
    paths = [str(place) for place in (folder, folder / "usr" / "bin" if folder else None) if place]
    for path in (*paths, None, str(FETCHED)):
        for name in names:
            if found := shutil.which(name, path=path):
                return Path(found)
    return None
