"""The ranks wait more for one another: the network, a late rank that was not traced, the pipeline."""

import numpy as np

from harness.diagnose.traces.answer import Answer, Case
from harness.diagnose.traces.breakdown import BUBBLE, COMPUTE, EXPOSED, STRAGGLER
from harness.diagnose.traces.shapes import same_calls
from harness.diagnose.traces.words import grown, ranks_text
from harness.model.diagnosis import Recommendation
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks


def exposed_grew(case: Case) -> Answer:
    """Transfers take longer and nothing hides them: the network, if as much is transferred as before."""
    by = grown(case.grew(EXPOSED))
    unlike = _other_calls(case)
    if unlike is not None:
        return Answer(
            Kind.INCONCLUSIVE,
            Confidence.POSSIBLE,
            f"{by} of it in exposed communication, and the job communicates differently: {unlike}",
            next_steps=("# other parallelism, bucket size or model? compare like with like",),
        )
    compute_is_real = case.decision.parts[COMPUTE].is_real
    unseen = case.alone or bool(case.untraced)
    sure = not unseen and not compute_is_real and all(g.is_own for g in case.found)
    caveat = "; a rank that was not traced and is late every time would look the same" if unseen else ""
    return Answer(
        Kind.COMM_SLOW,
        Confidence.LIKELY if sure else Confidence.POSSIBLE,
        f"{by} of it in exposed communication at equal calls"
        + ("" if compute_is_real else ", compute unchanged")
        + caveat,
        chain=("transfers take longer -> nothing is left to compute meanwhile -> steps are slow",),
        next_steps=(
            *(("# traces of other ranks of the same steps: is anybody late?",) if unseen else ()),
            "# link errors and port speeds of every node: NVLink, InfiniBand symbol and link-down counts",
            "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH   # next start: same transport?",
        ),
        recommendations=(Recommendation("hardware", "look for a degraded link, a busy switch, another job"),),
    )


def _other_calls(case: Case) -> str | None:
    """How ranks communicate otherwise than before, in words; None if they make the same calls."""
    sizes = case.then.world_size, case.now.world_size
    if None not in sizes and sizes[0] != sizes[1]:
        return f"{sizes[0]} ranks then, {sizes[1]} now"
    for growth in case.found:
        then, now = growth.then.work, growth.now.work
        if not same_calls(then.collectives, now.collectives) or not same_calls(then.nelems, now.nelems):
            return (
                f"{then.collectives:.4g} collectives of {then.nelems:.4g} elements a step then, "
                f"{now.collectives:.4g} of {now.nelems:.4g} now"
            )
    return None


def straggler_grew(case: Case) -> Answer:
    """All traced ranks wait for somebody who is late, and none of them is."""
    by = grown(case.grew(STRAGGLER))
    missing = case.untraced
    if case.now.world_size and not missing and len(case.found) == len(case.now.breakdowns):
        return Answer(
            Kind.INCONCLUSIVE,
            Confidence.POSSIBLE,
            f"{by} of it waiting in collectives for a late rank, though no rank's own work grew: "
            "ranks that are late in turns, or transfers of uneven speed",
            next_steps=("# more steps of the same ranks: is it always the same one that waits least?",),
        )
    least = min(case.now.breakdowns.values(), key=lambda b: float(np.median(b.parts[STRAGGLER])))
    shortest = () if case.alone else (f"rank {least.rank} waits least of those traced now",)
    rest = ranks_text(format_ranks(missing)) if missing else "the other ranks"
    return Answer(
        Kind.STRAGGLER,
        Confidence.POSSIBLE,
        f"{by} of it waiting in collectives for a late rank, which is none of those traced on both sides",
        chain=("a rank comes late to collectives -> the others wait in them", *shortest),
        next_steps=(
            f"# traces of {rest}, same steps: the one that waits least and works longest is late",
            "# step_time_s and compute_s of all ranks in the step records: topk(3)",
        ),
    )


def bubble_grew(case: Case) -> Answer:
    """A pipeline's stages wait for their neighbours."""
    return Answer(
        Kind.INCONCLUSIVE,
        Confidence.POSSIBLE,
        f"{grown(case.grew(BUBBLE))} of it in sends and receives that nothing hides: a pipeline stage waits "
        "for its neighbour",
        next_steps=(
            "# a trace of one rank of every pipeline stage: whose own work grew?",
            "# same number of micro-batches and same split of layers as then?",
        ),
    )
