"""How long the parts of one run took."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Seconds:
    """Durations of one run; None where a moment never came."""

    launch: float | None = None
    fault_to_notice: float | None = None
    notice_to_diagnosis: float | None = None
    fault_to_diagnosis: float | None = None
    total: float | None = None


def durations(
    started: float, joined: float | None, fired: float | None, noticed: float, diagnosed: float
) -> Seconds:
    """From moments, unix seconds each."""
    return Seconds(
        launch=_between(started, joined),
        fault_to_notice=_between(fired, noticed),
        notice_to_diagnosis=_between(noticed, diagnosed),
        fault_to_diagnosis=_between(fired, diagnosed),
        total=_between(started, diagnosed),
    )


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)
