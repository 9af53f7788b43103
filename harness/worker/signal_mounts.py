"""Whether a path lies on a filesystem whose calls can wait for a network."""

import re
from pathlib import Path

NETWORK_FILESYSTEMS = frozenset(
    (
        *("9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs2", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs"),
        *("vboxsf", "virtiofs", "vmhgfs", "wekafs"),
    )
)
"""Filesystem types of /proc/self/mountinfo that live elsewhere; `fuse` stands for fuse.ANYTHING too.

autofs: the first access mounts, which waits. Overlays and disks are local.
"""

_ESCAPED = re.compile(r"\\([0-7]{3})")
_SYMLINKS = 40
"""As many as the kernel follows."""


def mounts(mountinfo: str) -> dict[str, str]:
    """Mount point -> filesystem type; of several mounts on one point, the last covers the others.

    Source of the format: proc_pid_mountinfo(5).
    """
    found = {}
    for row in mountinfo.splitlines():
        before, _, after = row.partition(" - ")
        columns, kind = before.split(" "), after.split(" ")[0]
        if len(columns) > 4 and kind:
            found[_ESCAPED.sub(lambda code: chr(int(code[1], 8)), columns[4])] = kind
    return found


def on_network(path: Path, mountinfo: str | None = None) -> bool:
    """Whether opening `path` may wait for a network. Unknown (no /proc): False.

    The innermost mount that holds the path decides. Symbolic links are followed, but not where they lie on
    a network filesystem: even looking there could wait.
    """
    if mountinfo is None:
        try:
            mountinfo = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return False
    types = mounts(mountinfo)
    try:
        pending = [*reversed(path.absolute().parts[1:])]
    except OSError:  # the working directory is gone
        return False
    at, links = Path("/"), 0
    while pending and links <= _SYMLINKS:
        part = pending.pop()
        below = at.parent if part == ".." else at / part
        target = None if _is_network(_type_of(below, types)) else _link(below)
        if target is None:
            at = below
            continue
        links += 1
        pending += reversed(target.parts[target.is_absolute() :])
        at = Path("/") if target.is_absolute() else at
    return _is_network(_type_of(at, types))


def _link(path: Path) -> Path | None:
    try:
        return path.readlink()
    except (OSError, ValueError):
        return None


def _type_of(path: Path, types: dict[str, str]) -> str:
    """The type of the longest mount point that holds `path`."""
    return next((types[str(point)] for point in (path, *path.parents) if str(point) in types), "")


def _is_network(kind: str) -> bool:
    return kind.partition(".")[0] in NETWORK_FILESYSTEMS
