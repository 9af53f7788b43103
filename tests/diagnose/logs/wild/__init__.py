"""Incidents in the shape in which people paste them: made up, but written like what public threads show."""

from tests.diagnose.logs.wild import (
    deaths,
    hangs,
    labels,
    launchers,
    old,
    others,
    quiet,
    shapes,
    worn,
    writing,
)
from tests.diagnose.logs.wild.failing import FAILING, FAILING_BESIDE, FAILING_CENSUS
from tests.diagnose.logs.wild.model import Wild

WILD: dict[str, Wild] = {
    wild.name: wild
    for module in (labels, others, old, quiet, deaths, hangs, launchers, shapes, worn, writing)
    for wild in module.INCIDENTS
}

__all__ = ["FAILING", "FAILING_BESIDE", "FAILING_CENSUS", "WILD", "Wild"]
