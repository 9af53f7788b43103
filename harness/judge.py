"""Diagnosis against expectation and injection record: the verdict, each check by itself."""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.model.bundle import Injection
from harness.model.chain import WatchdogChain
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import GOES_ON, Kind
from harness.model.page import PageReport
from harness.model.ranks import format_ranks
from harness.model.spec import Expectation
from harness.model.verdict import CHECKS, Check, Outcome, Verdict


@dataclass(frozen=True)
class Observed:
    """What the harness itself did and saw. `lacking`: required evidence that is not there.

    `trace`: what the fault itself left behind, in words; None where it was not found. `chain`: what became of
    the timeout, where dumps were left to the watchdogs.
    """

    notice: str | None
    injected: tuple[int, ...]
    injections: tuple[Injection, ...]
    lacking: tuple[str, ...] = ()
    fault_to_diagnosis_s: float | None = None
    trace: str | None = None
    chain: WatchdogChain | None = None


def judge(diagnosis: Diagnosis, expected: Expectation, observed: Observed) -> Verdict:
    """Compare. An innocent accused is a fail whatever else holds; what did not run is never a pass."""
    checks = {
        "fault_fired": _fired(expected, observed),
        "noticed": _noticed(expected, observed),
        "kind": _kind(diagnosis, expected),
        "culprits": _culprits(diagnosis, expected),
        "nobody_else_accused": _nobody_else(diagnosis, expected),
        "evidence_complete": _evidence(expected, observed),
        "within_time": _time(expected, observed),
        "watchdog_chain": _chain(observed),
    }
    assert tuple(checks) == CHECKS
    return Verdict(_outcome(diagnosis, expected, observed, checks), checks)


def _outcome(
    diagnosis: Diagnosis, expected: Expectation, observed: Observed, checks: dict[str, Check]
) -> Outcome:
    if checks["nobody_else_accused"].ok is False:
        return Outcome.FAIL
    if checks["fault_fired"].ok is False or diagnosis.kind is Kind.INCONCLUSIVE:
        return Outcome.INCONCLUSIVE
    if observed.notice == "timeout":
        return Outcome.INCONCLUSIVE
    only_suspected = expected.accused == "culprits" and not diagnosis.culprits
    if only_suspected and set(diagnosis.suspects) >= set(expected.ranks) != set():
        return Outcome.INCONCLUSIVE
    failing = [name for name, check in checks.items() if check.ok is False]
    if not failing:
        return Outcome.PASS
    return Outcome.INCONCLUSIVE if failing == ["evidence_complete"] else Outcome.FAIL


def _fired(expected: Expectation, observed: Observed) -> Check:
    events = [i for i in observed.injections if i.event == "fired"]
    fired = {i.rank for i in events if i.rank is not None}
    if not expected.fault:
        return Check(None, None, _ranks(fired))
    ok, wanted, found = fired >= set(observed.injected), _ranks(observed.injected), _ranks(fired)
    if not observed.injected:
        ok, wanted = bool(events), "a fault of the whole job"
        found = events[0].fault if events else "none"
    if expected.trace is not None:
        ok = ok and observed.trace is not None
        wanted = f"{wanted}, and a trace of it: {' '.join(expected.trace)}"
        found = f"{found}, {observed.trace or 'no trace'}"
    return Check(ok, wanted, found)


def _noticed(expected: Expectation, observed: Observed) -> Check:
    if not expected.fault or expected.kind in GOES_ON:
        return Check(None, None, observed.notice)
    seen = observed.notice is not None and observed.notice not in ("finished", "timeout")
    return Check(seen, "a stall or an exit, before the timeout", observed.notice)


def _kind(diagnosis: Diagnosis, expected: Expectation) -> Check:
    wanted, found = expected.kind.value, diagnosis.kind.value
    ok = diagnosis.kind is expected.kind
    for name, value, has in (
        ("site", expected.site, diagnosis.where.site),
        ("how", expected.how, diagnosis.where.how),
        ("signal", expected.signal, diagnosis.where.signal),
    ):
        if value is not None:
            ok = ok and value == has
            wanted, found = f"{wanted}, {name} {value}", f"{found}, {name} {has}"
    if expected.recovered:
        recovered = diagnosis.where.recovered
        ok = ok and recovered is not None
        wanted, found = f"{wanted}, recovered", f"{found}, {'recovered' if recovered else 'not recovered'}"
    return Check(ok, wanted, found)


def _culprits(diagnosis: Diagnosis, expected: Expectation) -> Check:
    found = _accused_text(diagnosis)
    if expected.accused == "suspects":
        ok = diagnosis.suspects == expected.ranks and not diagnosis.culprits
        return Check(ok, f"suspects {_ranks(expected.ranks)}", found)
    if expected.accused == "nobody":
        return Check(not diagnosis.culprits and not diagnosis.suspects, "nobody", found)
    return Check(diagnosis.culprits == expected.ranks, f"rank {_ranks(expected.ranks)}", found)


def _nobody_else(diagnosis: Diagnosis, expected: Expectation) -> Check:
    """Convictions of others always count; suspicions only where the culprits are not among them."""
    innocent = set(diagnosis.culprits) - set(expected.ranks)
    if not set(expected.ranks) <= set(diagnosis.suspects):
        innocent |= set(diagnosis.suspects) - set(expected.ranks)
    return Check(not innocent, "nobody else", f"rank {_ranks(innocent)}" if innocent else "nobody")


def _evidence(expected: Expectation, observed: Observed) -> Check:
    if not expected.evidence:
        return Check(None, None, None)
    found = "; ".join(observed.lacking) if observed.lacking else "all of it"
    return Check(not observed.lacking, ", ".join(expected.evidence), found)


def _time(expected: Expectation, observed: Observed) -> Check:
    if expected.within_s is None or observed.fault_to_diagnosis_s is None:
        return Check(None, None, None)
    took = observed.fault_to_diagnosis_s
    return Check(took <= expected.within_s, f"within {expected.within_s:g} s", f"{took:.1f} s")


def _chain(observed: Observed) -> Check:
    chain = observed.chain
    if chain is None:
        return Check(None, None, None)
    found = "; ".join(chain.broken) or f"all links; {chain.links['first_signal'].says}"
    return Check(chain.whole, "every link, from the timeout to a file of each rank", found)


def with_page(verdict: Verdict, page: PageReport) -> Verdict:
    """A verdict with the checks of the page beside it. What died in the middle decides nothing."""
    checks = {**verdict.checks, **_page_checks(page)}
    if page.died is not None:
        outcome = Outcome.INCONCLUSIVE
    elif any(check.ok is False for check in _page_checks(page).values()):
        outcome = Outcome.FAIL
    else:
        outcome = verdict.verdict
    return Verdict(outcome, checks)


def _page_checks(page: PageReport) -> dict[str, Check]:
    """paged, paged_once, page_says, page_resolved, page_inhibited, page_confirmed; None where not asked."""
    came = page.seconds is not None
    paged = None if page.died and not came else came and (page.seconds or 0.0) <= page.within_s
    checks = {
        "paged": Check(paged, f"{page.expected} within {page.within_s:g} s", _page_text(page)),
        "paged_once": Check(page.pages == 1 if came else None, "one message", f"{page.pages} messages"),
        "page_says": Check(
            not page.missing if came else None,
            "all of it",
            f"not {', '.join(page.missing)}" if page.missing else "all of it",
        ),
    }
    if page.resolves:
        after = page.resolved_after_s
        ok = after is not None if came and not page.died else None
        checks["page_resolved"] = Check(ok, "resolved", "never" if after is None else f"after {after:.1f} s")
    if page.inhibited is not None:
        checks["page_inhibited"] = Check(
            page.inhibited, "held back during the restart", str(page.inhibited).lower()
        )
    if page.scene == "own":
        checks["page_confirmed"] = Check(page.confirmed, "the code word, typed by a person", None)
    return checks


def _page_text(page: PageReport) -> str:
    if page.died is not None:
        return page.died
    links = ", ".join(f"{name.replace('_', ' ')} {seconds:.1f} s" for name, seconds in page.links.items())
    if page.seconds is not None:
        return f"after {page.seconds:.1f} s: {links}"
    return f"no page: it got no further than {links or 'nothing'}; broken: {page.broken_link}"


def _accused_text(diagnosis: Diagnosis) -> str:
    if diagnosis.culprits:
        return f"rank {_ranks(diagnosis.culprits)}"
    return f"suspects {_ranks(diagnosis.suspects)}" if diagnosis.suspects else "nobody"


def _ranks(ranks: Iterable[int]) -> str:
    return format_ranks(ranks) or "none"
