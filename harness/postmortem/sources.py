"""Files of a bundle that only a postmortem reads: the harness's own clock, and what came of a page."""

import json
from collections.abc import Sequence

from harness.bundle.layout import Layout
from harness.model.bundle import Event


def events_of(layout: Layout) -> Sequence[Event]:
    """events.jsonl, oldest first; what is no event is passed over."""
    try:
        lines = layout.events.read_bytes().splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        try:
            said = json.loads(line)
            found.append(Event(float(said["t"]), str(said["what"]), said.get("rank"), said.get("detail")))
        except (ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda event: event.t)


def page_at(layout: Layout) -> float | None:
    """When the first page came, unix seconds; None without one."""
    try:
        messages = json.loads(layout.page.read_bytes())["messages"]
        return min((float(m["at"]) for m in messages if m["firing"]), default=None)
    except (OSError, ValueError, KeyError, TypeError):
        return None
