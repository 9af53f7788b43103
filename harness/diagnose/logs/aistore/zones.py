"""Do the workers' clock and the daemons' clock belong together? The job's death is the anchor."""

from collections.abc import Iterator, Sequence

from harness.diagnose.logs.aistore.model import TRACKED
from harness.diagnose.logs.aistore.series import Series, spacing_s

HOUR_S = 3600
MAX_HOURS = 14
QUIET_S = 900.0
"""No request for so long after a busy stretch, while the logs go on: the requests stopped."""

MIN_SERVED = 100
"""Fewer requests than this before a stop are no job."""

_MIN_TOLERANCE_S = 120.0
_MAX_TOLERANCE_S = 600.0
_SERVED = [i for i, name in enumerate(TRACKED) if name in ("get.n", "getbatch.n")]


def stops(daemons: Sequence[Series]) -> list[tuple[float, float]]:
    """Moments at which the targets' requests stopped growing, each as (no earlier than, no later than).

    Only stops after which the logs go on for QUIET_S count: logs that end are no stop.
    """
    targets = [daemon for daemon in daemons if daemon.role != "proxy" and daemon.steps]
    if not targets:
        return []
    last = max(daemon.last for daemon in targets)
    grown = sorted(_grown(targets), key=lambda span: span[1])
    found: list[tuple[float, float]] = []
    served = 0
    for index, (start, end, count) in enumerate(grown):
        after = grown[index + 1] if index + 1 < len(grown) else None
        served += count
        # A long span may hide that the requests began anew only at its end.
        resumed = last if after is None else after[1] - min(after[1] - after[0], _MAX_TOLERANCE_S)
        if resumed - end >= QUIET_S:
            if served >= MIN_SERVED:
                found.append((start, end))
            served = 0
    return found


def hours_between(daemons: Sequence[Series], job_death: float) -> tuple[int | None, str]:
    """Whole hours to add to the workers' times to get the daemons', and the words for it.

    None if nothing, or more than one number of hours, brings a stop of the requests to the job's death.
    """
    found = stops(daemons)
    if not found:
        return None, "the requests at the targets do not stop anywhere in these logs"
    every = max((spacing_s(daemon.steps) for daemon in daemons if daemon.role != "proxy"), default=180.0)
    tolerance = min(max(every, _MIN_TOLERANCE_S), _MAX_TOLERANCE_S)
    fits: set[int] = set()
    for start, end in found:
        for hours in range(-MAX_HOURS, MAX_HOURS + 1):
            moment = job_death + hours * HOUR_S
            if start - tolerance <= moment <= end + tolerance:
                fits.add(hours)
    if not fits:
        return None, "no stop of the requests lies at the job's death, nor whole hours from it"
    if len(fits) > 1:
        return None, "stops of the requests fit the job's death at several offsets"
    (hours,) = fits
    if hours == 0:
        return 0, "get.n stops growing when the job dies: the clocks agree"
    far = f"{abs(hours)} hour{'s' if abs(hours) > 1 else ''}"
    order, word = ("after", "ahead of") if hours > 0 else ("before", "behind")
    return hours, (
        f"get.n stops growing {far} {order} the job's death by the workers' clock: "
        f"the daemons' clock is {far} {word} the workers'"
    )


def _grown(targets: Sequence[Series]) -> Iterator[tuple[float, float, int]]:
    for daemon in targets:
        for step in daemon.steps:
            count = sum(step.grew[i] for i in _SERVED)
            if count > 0:
                yield step.start, step.end, count
