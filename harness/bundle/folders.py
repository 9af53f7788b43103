"""Names of run folders, and the link to the newest."""

from contextlib import suppress
from pathlib import Path

from harness.model.errors import PrerequisiteError


def fresh_folder(base: Path) -> Path:
    """Make the folder `base`, or `base-2`, ... where it exists: two runs in one second get different ones.

    Raises:
        PrerequisiteError: it cannot be made.
    """
    for attempt in range(1, 1000):
        root = base if attempt == 1 else base.with_name(f"{base.name}-{attempt}")
        try:
            root.mkdir(parents=True)
            return root
        except FileExistsError:
            continue
        except OSError as error:
            raise PrerequisiteError(
                f"{root}: {error.strerror}: give a folder that you can write with --out"
            ) from None
    raise PrerequisiteError(f"{base}: a thousand runs in one second")


def point_latest(root: Path) -> None:
    """``latest`` beside `root` points at it; a file system without links does without."""
    link = root.parent / "latest"
    scratch = root.parent / f".latest.{root.name}"
    with suppress(OSError):
        scratch.symlink_to(root.name)
        scratch.replace(link)
