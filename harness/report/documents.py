"""JSON documents of the contract, built from results."""

from harness.bundle.codec import Json, to_json
from harness.experiment import RunResult


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


def runs_document(runs: list[RunResult]) -> Json:
    """`drill/runs/1`, or a single `drill/run/1`."""
    documents = [run_document(run) for run in runs]
    if len(documents) == 1:
        return documents[0]
    return {"schema": "drill/runs/1", "runs": documents}
