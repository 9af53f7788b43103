"""Where the job's environment sends Flight Recorder dumps, and whether they will be there afterwards."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from harness.doctor import TEMPORARY, defeating, file_system
from harness.observe.dumps import PREFIX_VARIABLES, dump_prefix
from harness.worker.probes.options import Options

DEFAULTS: Options = {"nproc": 8, "without": False}

_CHECK = ".drill-check"


def measure(options: Options, environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Figures of `dump_path`. `without`: as if no path were set, to show where dumps would go then.

    Every rank's file is tried, beside the name that torch would write to: dumps of an earlier incident stay.
    """
    seen = dict(environ)
    if options["without"]:
        for name in PREFIX_VARIABLES:
            seen.pop(name, None)
    prefix = dump_prefix(seen)
    nproc = int(options["nproc"])
    folder = Path(prefix).parent
    made = _make(folder)
    failed = _try_all(prefix, nproc)
    listed = len(list(folder.glob(f"{_escaped(Path(prefix).name)}*{_CHECK}"))) if not failed else 0
    found = file_system(folder) if folder.exists() else "an unknown file system"
    earlier = sum(Path(f"{prefix}{rank}").exists() for rank in range(nproc))
    for rank in range(nproc):
        with suppress(OSError):
            Path(f"{prefix}{rank}{_CHECK}").unlink()
    for path in reversed(made):
        with suppress(OSError):
            path.rmdir()
    defeated = defeating(seen)
    if not Path(prefix).is_absolute():
        defeated = [
            *defeated,
            f"{prefix} is relative: the working folder of every rank decides where that is",
        ]
    persistent = found not in TEMPORARY
    says = [*failed[:2], *defeated]
    if not persistent:
        says.append(f"{prefix}* is on {found}: gone with the container")
    if earlier:
        says.append(f"{earlier} dumps of an earlier run are there, and would be overwritten: move them first")
    return {
        "path": prefix,
        "set": any(seen.get(name) for name in PREFIX_VARIABLES),
        "writable": not failed,
        "persistent": persistent,
        "file_system": found,
        "collectable": not failed and listed == nproc,
        "defeated_by": "; ".join(defeated),
        "earlier_dumps": earlier,
        "says": says,
    }


def _make(folder: Path) -> list[Path]:
    """Make a folder as torch does; returns what was not there before."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return [path for path in reversed(missing) if path.exists()]


def _try_all(prefix: str, nproc: int) -> list[str]:
    """Write and read back a file for every rank; what went wrong."""
    failed = []
    for rank in range(nproc):
        path = Path(f"{prefix}{rank}{_CHECK}")
        try:
            path.write_bytes(b"drill")
            if path.read_bytes() != b"drill":
                failed.append(f"{path}: what was written does not come back")
        except OSError as error:
            failed.append(f"rank {rank} cannot write {prefix}{rank}: {error.strerror}")
    return failed


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
