"""What the cases share: when ranks are lost, who waits, how it ends."""

from collections.abc import Callable

from tests.diagnose.logs.cases import launchers
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.watchdog import (
    Wait,
)

Tell = Callable[[Incident], None]


STEP = Wait(1370, enqueued=1372)


LOST = 910.0


TENSOR = "TENSOR_MODEL_PARALLEL_GROUP"


def abort(incident: Incident, t: float, ranks: tuple[int, ...]) -> None:
    """The watchdogs' aborts as the launcher sees them; who did not abort is closed by the agent."""
    launchers.ended(incident, t + 3, dict.fromkeys(ranks, (-6, t + 1.5)))


def others(incident: Incident, *odd: int) -> tuple[int, ...]:
    return tuple(r for r in incident.ranks if r not in odd)
