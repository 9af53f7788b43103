"""Lines that a container runtime, a journal or a logger wraps into JSON, unwrapped."""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MESSAGES = ("log", "MESSAGE", "message", "msg", "event", "text")
TIMES = ("time", "timestamp", "ts", "@timestamp", "asctime")
HOSTS = ("_HOSTNAME", "hostname", "host")
EXCEPTIONS = ("exception", "exc_info", "stack_trace", "traceback")
RANKS = ("global_rank", "rank")
LOCAL_RANKS = ("local_rank",)
BOUND = ("extra", "context", "fields")
"""Under these, loggers keep what was bound to them."""

MAX_RANK = 1 << 20


class Unwrapped(NamedTuple):
    """What an object says, a line each, with its time, host and rank in front of each.

    `states_rank`: whether the rank was a field of the object, rather than the writer's own label.
    """

    rows: tuple[str, ...]
    states_rank: bool = False


def unwrapped(text: str) -> Unwrapped | None:
    """What a line says inside its JSON; None for any other line.

    Docker writes ``{"log": ..., "stream": ..., "time": ...}``, journald ``MESSAGE`` and ``_HOSTNAME``,
    structlog ``event``, loguru ``text``, all loggers perhaps a rank and a traceback under keys of their own.
    """
    if not text.startswith("{") or not text.rstrip().endswith("}"):
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    message = _first(said, MESSAGES)
    if message is None:
        return None
    raised = _first(said, EXCEPTIONS) or ""
    at, host = _first(said, TIMES) or "", _first(said, HOSTS)
    front = f"{at} " if at[:2].isdigit() else ""
    front += f"{host}: " if host else ""
    ranks = "" if "[rank" in message else _ranks(said)
    rows = [row.rstrip("\r") for part in (message, raised) for row in part.split("\n") if row.strip()]
    return Unwrapped(tuple(front + ranks + row for row in rows or [""]), "[rank" in ranks)


def _ranks(said: Mapping[str, object]) -> str:
    """Ranks as launchers' labels say them."""
    record = said.get("record")
    tops = [said, record] if isinstance(record, dict) else [said]
    bound = [top[key] for top in tops for key in BOUND if isinstance(top.get(key), dict)]
    places = [said, *(one for one in bound if isinstance(one, dict))]
    local, rank = _number(places, LOCAL_RANKS), _number(places, RANKS)
    labels = "" if local is None else f"[local_rank{local}]: "
    return labels if rank is None else f"{labels}[rank{rank}]: "


def _number(places: Iterable[Mapping[str, object]], keys: Iterable[str]) -> int | None:
    for key in keys:
        for place in places:
            value = place.get(key)
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8:
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_RANK:
                return value
    return None


def _first(said: Mapping[str, object], keys: Iterable[str]) -> str | None:
    return next((value for key in keys if isinstance(value := said.get(key), str)), None)
