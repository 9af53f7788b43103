"""A log file for each rank, and the way from a rank's number to a host and a card."""

import json
import os
import re
from pathlib import Path

from harness.model.ranks import format_ranks
from harness.worker.probes.options import Options, Unable

DEFAULTS: Options = {"bundle": "", "logs": "", "table": "", "world_size": 0}

PREVIOUS = "DRILL_PREVIOUS_BUNDLE"
"""Set by the checklist to the bundle of the step before, which is looked at if nothing else is named."""

_IN_NAME = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)


def measure(options: Options) -> dict[str, object]:
    """Figures of `rank_logs`. Of a bundle, or of `logs`, torchrun's --log-dir, with the `table` beside it.

    The table is JSON: ``{"ranks": [{"rank", "host", "device" or "device_uuid"}, ...]}``, as ranks.json.

    Raises:
        Unable: nothing to look at.
    """
    bundle = str(options["bundle"]) or os.environ.get(PREVIOUS, "")
    logs = Path(str(options["logs"]) or f"{bundle}/logs")
    table = Path(str(options["table"]) or f"{bundle}/ranks.json")
    if not options["logs"] and not bundle:
        raise Unable("give --logs, torchrun's --log-dir, and --table: from rank to host and device")
    rows = _table(table)
    world = int(options["world_size"]) or max((*rows, *_ranks_of(logs)), default=-1) + 1
    if not world:
        raise Unable(f"{logs}: no rank has a log there: did the job run with --redirects 3 --log-dir?")
    having = _ranks_of(logs)
    without_log = [rank for rank in range(world) if rank not in having]
    unplaced = [rank for rank in range(world) if not _placed(rows.get(rank))]
    says = []
    if without_log:
        says.append(f"no log of rank {format_ranks(without_log)} under {logs}")
    if unplaced:
        says.append(f"{table} does not say on which host and device rank {format_ranks(unplaced)} is")
    return {
        "ranks": world,
        "without_log": format_ranks(without_log),
        "without_device": format_ranks(unplaced),
        "example": _example(rows.get(world - 1), world - 1),
        "says": says,
    }


def _ranks_of(logs: Path) -> set[int]:
    """Ranks that have a file: by torchrun's folders of one node, or by a number in the name."""
    found = set()
    for path in logs.rglob("*"):
        if not path.is_file():
            continue
        if path.name in ("stderr.log", "stdout.log") and path.parent.name.isdecimal():
            found.add(int(path.parent.name))
        elif named := _IN_NAME.search(path.name):
            found.add(int(named[1]))
    return found


def _table(path: Path) -> dict[int, dict[str, object]]:
    """Rows by rank; none where the file is not there or is no table."""
    try:
        rows = json.loads(path.read_text())["ranks"]
        return {row["rank"]: row for row in rows if isinstance(row.get("rank"), int)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _placed(row: dict[str, object] | None) -> bool:
    return row is not None and bool(row.get("host")) and bool(row.get("device") or row.get("device_uuid"))


def _example(row: dict[str, object] | None, rank: int) -> str:
    """The way from the last rank to its card, as a person on call goes it."""
    if row is None:
        return ""
    device = row.get("device_uuid") or row.get("device")
    return f"rank {rank} is pid {row.get('pid')} on {row.get('host')}, device {device}"
