"""From the part that grew to an explanation."""

from harness.diagnose.traces.answer import Answer, Case
from harness.diagnose.traces.breakdown import BUBBLE, COMPUTE, DATA, EXPOSED, HOST, STRAGGLER
from harness.diagnose.traces.host import host_grew
from harness.diagnose.traces.own_work import compute_grew, compute_grew_on_few, data_grew, kernels_grew
from harness.diagnose.traces.waits import bubble_grew, exposed_grew, straggler_grew
from harness.diagnose.traces.words import grown
from harness.model.kinds import Confidence, Kind


def explain(case: Case) -> Answer:
    """One answer for the part that decides; healthy if steps take no longer than before."""
    bucket = case.decision.bucket
    if not case.decision.slower:
        return Answer(Kind.HEALTHY, Confidence.LIKELY, "nothing grew beyond noise")
    if case.decision.late:
        return _few(case, bucket)
    if bucket is None and not case.decision.step.is_real:
        return Answer(Kind.HEALTHY, Confidence.POSSIBLE, "within the spread from step to step")
    if bucket is None:
        return Answer(
            Kind.INCONCLUSIVE,
            Confidence.POSSIBLE,
            "no single part grew beyond its own noise",
            next_steps=("# more steps a trace (schedule(active=10)), at a quiet moment",),
        )
    if bucket in (EXPOSED, STRAGGLER, BUBBLE):
        return {EXPOSED: exposed_grew, STRAGGLER: straggler_grew, BUBBLE: bubble_grew}[bucket](case)
    if bucket in (DATA, COMPUTE, HOST):
        return {DATA: data_grew, COMPUTE: compute_grew, HOST: host_grew}[bucket](case)
    return kernels_grew(case, bucket)


def _few(case: Case, bucket: str | None) -> Answer:
    if bucket == DATA:
        return data_grew(case)
    if bucket == COMPUTE:
        return compute_grew_on_few(case)
    if bucket == HOST or bucket is None:
        answer = host_grew(case)
        if answer.kind is not Kind.INCONCLUSIVE:
            return answer
        by = max(g.own.by_s for g in case.few)
        return Answer(
            Kind.STRAGGLER,
            Confidence.POSSIBLE,
            f"its own part of the step takes {grown(by)}, while its CPU does what no annotation names",
            site="host",
            convicts=False,
            next_steps=answer.next_steps,
        )
    return kernels_grew(case, bucket)
