"""Restarts: the last attempt counts, and attempts that end alike are a loop."""

from tests.diagnose.logs.cases.deaths import FAILS, KEY, ends
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.memory import device_oom
from tests.diagnose.logs.cases.model import Case, Expect


def _two_oom_attempts(incident: Incident) -> None:
    for attempt in range(3):
        t = attempt * 400.0
        if attempt:
            incident.restart(t)
        incident.steps(t + 20, t + 60)
        incident.raises(t + 70, 5, device_oom(incident, 5))
        ends(incident, 5, 1, t + 70)


def _last_attempt(incident: Incident) -> None:
    """The first attempt's cause is not the last one's."""
    incident.steps(20, 290)
    incident.raises(FAILS, 5, device_oom(incident, 5))
    ends(incident, 5, 1)
    incident.restart(400)
    incident.steps(420, 2900, first=28)
    incident.raises(2910, 2, KEY)
    ends(incident, 2, 1, 2910)


ATTEMPTS: tuple[Case, ...] = (
    Case(
        "last_attempt",
        "1: diagnose the last attempt",
        Expect("software_error", culprits=(2,), guilty=(5,)),
        _last_attempt,
        ("ranks", "cloud"),
    ),
    Case(
        "restart_loop",
        "1: attempts that end alike without progress",
        Expect("restart_loop", either=(5,), in_chain="oom|out of memory"),
        _two_oom_attempts,
        ("ranks", "nodes"),
    ),
)
