"""Which rank is on which host and card, as far as anybody wrote it down."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Where a rank runs. `gpu` is its local rank, empty where nothing says so."""

    host: str
    gpu: str = ""


def read_places(ranks_file: Path | None, live: Path | None) -> dict[int, Place]:
    """From ranks.json, and from the registrations of running ranks, which are newer; empty without either."""
    found: dict[int, Place] = {}
    documents: list[object] = []
    if ranks_file is not None:
        documents += _ranks_of(_load(ranks_file))
    if live is not None:
        documents += [_load(path) for path in sorted(live.glob("attempt_*_rank_*.json"), key=_attempt)]
    for said in documents:
        if isinstance(said, dict) and isinstance(rank := said.get("rank"), int):
            local = said.get("local_rank")
            found[rank] = Place(str(said.get("host", "")), str(local) if isinstance(local, int) else "")
    return found


def _attempt(path: Path) -> int:
    number = path.name.split("_")[1]
    return int(number) if number.isdigit() else 0


def _ranks_of(document: object) -> list[object]:
    ranks = document.get("ranks") if isinstance(document, dict) else None
    return ranks if isinstance(ranks, list) else []


def _load(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
