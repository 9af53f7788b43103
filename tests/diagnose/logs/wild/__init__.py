"""Incidents in the shape in which people paste them: made up, but written like what public threads show."""

from tests.diagnose.logs.wild import accusing, deaths, hangs, launchers, quiet, writing
from tests.diagnose.logs.wild.failing import FAILING
from tests.diagnose.logs.wild.model import Wild

WILD: dict[str, Wild] = {
    wild.name: wild
    for module in (accusing, quiet, deaths, hangs, launchers, writing)
    for wild in module.INCIDENTS
}

__all__ = ["FAILING", "WILD", "Wild"]
