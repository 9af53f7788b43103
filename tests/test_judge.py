"""Every way in which a diagnosis can miss what was injected."""

import dataclasses

import pytest

from harness.judge import Observed, judge
from harness.model.bundle import Injection
from harness.model.chain import LINKS, Link, WatchdogChain
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Category, Confidence, Kind
from harness.model.spec import Expectation
from harness.model.verdict import CHECKS, Outcome

RIGHT = Diagnosis(
    Kind.COLLECTIVE_SKIPPED, Category.SOFTWARE, Confidence.CERTAIN, "s", culprits=(5,), victims=(0, 1)
)
EXPECTED = Expectation(Kind.COLLECTIVE_SKIPPED, ranks=(5,), evidence=("flight_recorder:all",), within_s=10.0)
OBSERVED = Observed("stall", (5,), (Injection("fired", 1.0, 5, "skip"),), (), 3.0)


def test_all_right_is_a_pass() -> None:
    """Every check holds, in the contract's order."""
    verdict = judge(RIGHT, EXPECTED, OBSERVED)

    assert verdict.verdict is Outcome.PASS
    assert tuple(verdict.checks) == CHECKS
    assert {name for name, check in verdict.checks.items() if not check.ok} == {"watchdog_chain"}
    assert verdict.checks["watchdog_chain"].ok is None


@pytest.mark.parametrize(
    ("diagnosis", "observed", "outcome", "failing"),
    [
        ({"kind": Kind.COLLECTIVE_EXTRA}, {}, Outcome.FAIL, "kind"),
        ({"culprits": (4,)}, {}, Outcome.FAIL, "nobody_else_accused"),
        ({"culprits": (4, 5)}, {}, Outcome.FAIL, "nobody_else_accused"),
        ({"culprits": ()}, {}, Outcome.FAIL, "culprits"),
        ({"culprits": (), "suspects": (4, 5)}, {}, Outcome.INCONCLUSIVE, "culprits"),
        ({"culprits": (), "suspects": (3, 4)}, {}, Outcome.FAIL, "nobody_else_accused"),
        ({"kind": Kind.INCONCLUSIVE, "culprits": ()}, {}, Outcome.INCONCLUSIVE, "kind"),
        ({}, {"injections": ()}, Outcome.INCONCLUSIVE, "fault_fired"),
        ({}, {"notice": "timeout"}, Outcome.INCONCLUSIVE, "noticed"),
        ({}, {"notice": "finished"}, Outcome.FAIL, "noticed"),
        ({}, {"lacking": ("flight_recorder of rank 3",)}, Outcome.INCONCLUSIVE, "evidence_complete"),
        ({}, {"fault_to_diagnosis_s": 11.0}, Outcome.FAIL, "within_time"),
        ({"culprits": (4,)}, {"injections": ()}, Outcome.FAIL, "fault_fired"),
    ],
)
def test_each_miss_has_its_outcome(
    diagnosis: dict[str, object], observed: dict[str, object], outcome: Outcome, failing: str
) -> None:
    """An innocent accused fails whatever else holds; what did not run is never a pass."""
    verdict = judge(
        dataclasses.replace(RIGHT, **diagnosis),  # type: ignore[arg-type]
        EXPECTED,
        dataclasses.replace(OBSERVED, **observed),  # type: ignore[arg-type]
    )

    assert verdict.verdict is outcome
    assert verdict.checks[failing].ok is False


def test_an_expected_tie_passes_with_suspects_only() -> None:
    """Suspects that were expected are a pass; a conviction there is not."""
    tie = Expectation(Kind.COLLECTIVE_SIZE_MISMATCH, "suspects", (0, 1))
    suspects = dataclasses.replace(RIGHT, kind=Kind.COLLECTIVE_SIZE_MISMATCH, culprits=(), suspects=(0, 1))
    observed = Observed("exit", (1,), (Injection("fired", 1.0, 1, "size"),))

    assert judge(suspects, tie, observed).verdict is Outcome.PASS
    convicted = dataclasses.replace(suspects, culprits=(1,), suspects=())
    assert judge(convicted, tie, observed).verdict is Outcome.FAIL


def test_control_needs_health_and_nobody_accused() -> None:
    """Nothing was broken: checks of the fault do not apply."""
    healthy = Diagnosis(Kind.HEALTHY, Category.NONE, Confidence.CERTAIN, "fine")
    expected = Expectation(Kind.HEALTHY, "nobody", fault=False)
    observed = Observed("finished", (), ())

    verdict = judge(healthy, expected, observed)

    assert verdict.verdict is Outcome.PASS
    assert verdict.checks["fault_fired"].ok is None
    assert verdict.checks["noticed"].ok is None
    blamed = judge(dataclasses.replace(healthy, culprits=(3,)), expected, observed)
    assert blamed.verdict is Outcome.FAIL


@pytest.mark.parametrize(("holds", "outcome"), [(True, Outcome.PASS), (False, Outcome.FAIL)])
def test_a_broken_link_of_the_watchdogs_chain_fails(holds: bool, outcome: Outcome) -> None:
    """A right diagnosis is not enough where the chain itself was the drill."""
    links = {name: Link(True, "fine") for name in LINKS} | {"files": Link(holds, "no file of rank 3")}
    verdict = judge(RIGHT, EXPECTED, dataclasses.replace(OBSERVED, chain=WatchdogChain(links, first=2)))

    assert verdict.verdict is outcome
    check = verdict.checks["watchdog_chain"]
    assert (check.ok, "no file of rank 3" in str(check.found)) == (holds, not holds)
