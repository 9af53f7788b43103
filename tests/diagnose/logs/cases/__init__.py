"""The corpus of log incidents: events with a known answer, and the dresses that logs come in."""

from tests.diagnose.logs.cases.dresses import DRESSES
from tests.diagnose.logs.cases.hangs import HANGS
from tests.diagnose.logs.cases.model import Case, Dress, Expect

CASES: dict[str, Case] = {case.name: case for case in (*HANGS,)}

__all__ = ["CASES", "DRESSES", "Case", "Dress", "Expect"]
