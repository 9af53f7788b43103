"""A verdict has three values, and says each check separately."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Outcome(str, Enum):
    """Passed, failed, or the drill could not decide. Could-not-run is never a pass."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


CHECKS = (
    "fault_fired",
    "noticed",
    "kind",
    "culprits",
    "nobody_else_accused",
    "evidence_complete",
    "within_time",
    "watchdog_chain",
)


@dataclass(frozen=True)
class Check:
    """One comparison. `ok` is None where the check does not apply."""

    ok: bool | None
    expected: str | None
    found: str | None


@dataclass(frozen=True)
class Verdict:
    """All checks of one drill, by name in the order of `CHECKS`."""

    verdict: Outcome
    checks: Mapping[str, Check]
