"""What the name of a log says: rank, node, attempt, host."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RANK = re.compile(
    r"(?<![A-Za-z])(?<!node_)(?<!node-)(?<!local_)(?<!local-)(?:global[_-]?)?rank[_.-]?(\d{1,7})"
)
_MESH = re.compile(r"(?:^|[_.-])(?:pp|tp|dp|ep|cp|mp|sp|pipe(?:line)?|tensor|data|expert)[_.-]?$")
_NODE = re.compile(r"(?<![A-Za-z])node(?:[_-]?(?:rank|id))?[_.-]?(\d{1,6})(?![0-9A-Za-z])")
_NODE_OF_JOB = re.compile(
    r"(?:error|err|stderr|output|out|stdout|log|job|slurm)[_.-]\d{3,12}-(\d{1,5})\.(?:out|err|log|txt)"
)
"""SLURM's ``%j-%n``. ``%A_%a``, with an underscore, is a job and its array task."""

_ATTEMPT = re.compile(r"attempt_(\d{1,6})")
_HOST = re.compile(
    r"(?:[a-z0-9][a-z0-9-]{0,200}-)?(?:worker|master|launcher)-\d{1,6}|ip-\d{1,3}(?:-\d{1,3}){3}"
    r"|\d{1,3}(?:\.\d{1,3}){3}"
)
_PACKED = (".gz", ".bz2", ".xz")
_SUFFIXES = (".out", ".err", ".log", ".txt", ".stderr", ".stdout")


@dataclass(frozen=True)
class Said:
    """What a name says; None where it says nothing. See `TextFile`."""

    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    node: int | None = None
    host: str | None = None


def said_by(parts: Sequence[str], own: int) -> Said:
    """What a file's path says, by its parts; of the last `own` of them, the folders may name node and host.

    A name never gives a rank and a node from one number.
    """
    *folders, name = parts
    base = name
    for suffix in _PACKED:
        base = base.removesuffix(suffix)
    attempts = [int(found[1]) for part in folders if (found := _ATTEMPT.fullmatch(part))]
    torchrun = len(folders) > 1 and _ATTEMPT.fullmatch(folders[-2]) and folders[-1].isascii()
    local = folders[-1] if torchrun and folders[-1].isdigit() and len(folders[-1]) < 8 else None
    ranks = list(_RANK.finditer(name))
    # A coordinate of a mesh is no rank, and of several numbers none is sure.
    ranked = ranks[0] if len(ranks) == 1 and not _MESH.search(name[: ranks[0].start()]) else None
    places = [base, *reversed(folders[len(parts) - own :])]
    return Said(
        rank=int(ranked[1]) if ranked else None,
        local_rank=int(local) if local is not None else None,
        attempt=attempts[-1] if attempts else None,
        node=next((node for place in places if (node := _node(place)) is not None), None),
        host=next((host for place in places if (host := _host(place)) is not None), None),
    )


def _node(name: str) -> int | None:
    found = _NODE_OF_JOB.fullmatch(name) or _NODE.search(name)
    return int(found[1]) if found else None


def _host(name: str) -> str | None:
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name if _HOST.fullmatch(name) else None
