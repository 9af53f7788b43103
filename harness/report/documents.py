"""JSON documents of the contract, built from results."""

from collections.abc import Sequence

from harness.bundle.codec import Json, to_json
from harness.durations import Seconds
from harness.experiment import RunResult
from harness.many import RunOutcome
from harness.model.plan import RunPlan


def run_document(run: RunResult) -> Json:
    """`drill/run/1`."""
    plan = run.plan
    params = {
        **plan.parameters,
        "mode": plan.mode.name,
        "culprit": plan.culprits,
        "nproc": plan.nproc,
        "backend": plan.backend,
        "launcher": plan.launcher,
    }
    if plan.shared:
        params["share_gpu"] = True
    if plan.watchdog:
        params["wait_for_watchdog"] = True
    return {
        "schema": "drill/run/1",
        "drill": plan.spec.name,
        "params": to_json(params),
        "verdict": to_json(run.verdict),
        "diagnosis": to_json(run.result.diagnosis),
        "bundle": str(run.bundle),
        "seconds": to_json(run.seconds),
        "page": to_json(run.page),
        "error": None,
        "backend_reason": plan.backend_reason,
        "notes": to_json(plan.notes),
        "watchdog": to_json(run.chain),
    }


def plans_document(plans: Sequence[RunPlan]) -> Json:
    """`drill/plan/1`: what `--dry-run` would start."""
    return {
        "schema": "drill/plan/1",
        "plans": [
            {
                "drill": plan.spec.name,
                "mode": plan.mode.name,
                "culprits": to_json(plan.culprits),
                "nproc": plan.nproc,
                "backend": plan.backend,
                "backend_reason": plan.backend_reason,
                "shared_gpu": plan.shared,
                "notes": to_json(plan.notes),
                "launcher": plan.launcher,
                "script": str(plan.spec.script),
                "argv": to_json(plan.argv),
                "env": to_json(plan.env),
                "expected": to_json(plan.expectation),
            }
            for plan in plans
        ],
    }


def outcome_document(outcome: RunOutcome) -> Json:
    """`drill/run/1`; `error` says why there is no verdict, where there is none."""
    if outcome.run is not None:
        return run_document(outcome.run)
    assert outcome.error is not None
    title = outcome.title
    return {
        "schema": "drill/run/1",
        "drill": title.drill,
        "params": {"mode": title.mode, "culprit": to_json(title.culprits)},
        "verdict": None,
        "diagnosis": None,
        "bundle": str(outcome.bundle) if outcome.bundle else None,
        "seconds": to_json(Seconds(total=outcome.seconds)),
        "page": None,
        "error": {"exit_code": outcome.error.exit_code, "message": outcome.error.message},
    }


def runs_document(outcomes: Sequence[RunOutcome]) -> Json:
    """`drill/runs/1`."""
    return {"schema": "drill/runs/1", "runs": [outcome_document(outcome) for outcome in outcomes]}
