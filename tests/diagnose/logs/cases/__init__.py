"""The corpus of log incidents: events with a known answer, and the dresses that logs come in."""

from tests.diagnose.logs.cases.attempts import ATTEMPTS
from tests.diagnose.logs.cases.deaths import DEATHS
from tests.diagnose.logs.cases.devices import DEVICES
from tests.diagnose.logs.cases.dresses import DRESSES
from tests.diagnose.logs.cases.hangs import HANGS
from tests.diagnose.logs.cases.memory import MEMORY
from tests.diagnose.logs.cases.model import Case, Dress, Expect
from tests.diagnose.logs.cases.numbers import NUMBERS
from tests.diagnose.logs.cases.phases import PHASES
from tests.diagnose.logs.cases.reports import REPORTS
from tests.diagnose.logs.cases.stops import STOPS

CASES: dict[str, Case] = {
    case.name: case
    for case in (*HANGS, *NUMBERS, *PHASES, *DEATHS, *MEMORY, *ATTEMPTS, *DEVICES, *STOPS, *REPORTS)
}

__all__ = ["CASES", "DRESSES", "Case", "Dress", "Expect"]
