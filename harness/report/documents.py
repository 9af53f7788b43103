"""JSON documents of the contract, built from results."""

from harness.bundle.codec import Json, to_json
from harness.experiment import RunResult
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
    return {
        "schema": "drill/run/1",
        "drill": plan.spec.name,
        "params": to_json(params),
        "verdict": to_json(run.verdict),
        "diagnosis": to_json(run.result.diagnosis),
        "bundle": str(run.bundle),
        "seconds": to_json(run.seconds),
    }


def plans_document(plans: list[RunPlan]) -> Json:
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
                "launcher": plan.launcher,
                "script": str(plan.spec.script),
                "argv": to_json(plan.argv),
                "env": to_json(plan.env),
                "expected": to_json(plan.expectation),
            }
            for plan in plans
        ],
    }


def runs_document(runs: list[RunResult]) -> Json:
    """`drill/runs/1`, or a single `drill/run/1`."""
    documents = [run_document(run) for run in runs]
    if len(documents) == 1:
        return documents[0]
    return {"schema": "drill/runs/1", "runs": documents}
