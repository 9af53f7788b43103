"""What to change and what to fetch, after what the daemons' logs showed."""

from collections.abc import Sequence

from harness.diagnose.logs.aistore.fetch import fetch_commands
from harness.diagnose.logs.aistore.model import DaemonRow, Window
from harness.model.diagnosis import Recommendation

_PRESSURE = ("pressure", "disk_critical", "memory")


def recommendations(rows: Sequence[DaemonRow]) -> tuple[Recommendation, ...]:
    """What would help, only for what was seen and was not seen as often before."""
    seen: dict[str, list[str]] = {}
    for row in rows:
        for pattern in row.patterns:
            if not pattern.usual:
                seen.setdefault(pattern.name, []).append(row.id)
    found: list[Recommendation] = []
    if strained := _ids([one for name in _PRESSURE for one in seen.get(name, ())]):
        found.append(
            Recommendation("storage", f"take load from {strained}: disks, memory and CPU in the window")
        )
    if broken := _ids(seen.get("stream_broken", ())):
        found.append(
            Recommendation("storage", f"check the network between targets, and the peers of {broken}")
        )
    if "batch_lost" in seen:
        found.append(
            Recommendation(
                "client", "ask again for a batch that comes back short, or fall back to single GETs"
            )
        )
    if proxies := _ids([row.id for row in rows if row.role == "proxy" and row.erring]):
        found.append(Recommendation("storage", f"check {proxies}: its way to the targets and to its clients"))
    if restarted := _ids([row.id for row in rows if row.restarted]):
        found.append(Recommendation("storage", f"find out why {restarted} restarted inside the window"))
    return tuple(found)


def next_steps(
    rows: Sequence[DaemonRow], window: Window, roles: Sequence[str], erring: Sequence[str]
) -> tuple[str, ...]:
    """What to fetch where the logs leave something open."""
    if not rows:
        return ("fetch the daemons' logs:", *fetch_commands())
    found: list[str] = []
    if not window.compared:
        found.append(
            "find out the time zones: give the moment of the job's death (the scheduler's CANCELLED line), "
            "and daemon logs that go on for at least 15 minutes after it"
        )
    if part := _ids([row.id for row in rows if not row.covers]):
        found.append(f"fetch all log files of {part}, not the newest alone: theirs do not cover the window")
    if erring and "proxy" not in roles:
        found.append("fetch the proxies' logs: they tell the proxy layer from the targets")
    if "proxy" in roles and all(role == "proxy" for role in roles):
        found.append("fetch the targets' logs: the proxies' alone do not show what the targets did")
    unjudged = [row.id for row in rows if any(growth.risen is None for growth in row.deltas)]
    if unjudged:
        found.append(f"fetch earlier logs of {_ids(unjudged)}: nothing before the window to compare with")
    return tuple(found)


def _ids(ids: Sequence[str]) -> str:
    once = list(dict.fromkeys(ids))
    return ", ".join(once[:4]) + (f" and {len(once) - 4} more" if len(once) > 4 else "")
