"""The ranks' own work grew: matrix kernels, other kernels, recomputation, data."""

from harness.diagnose.traces.answer import Answer, Case
from harness.diagnose.traces.breakdown import COMPUTE, DATA, KERNELS, RECOMPUTE
from harness.diagnose.traces.shapes import changes, grown_names, slowed_evenly
from harness.diagnose.traces.words import grown
from harness.model.diagnosis import Recommendation
from harness.model.kinds import Category, Confidence, Kind

CLOCKS = "nvidia-smi -q -d CLOCK,TEMPERATURE,POWER,PERFORMANCE"


def data_grew(case: Case) -> Answer:
    """Nothing computes while the training thread waits in the DataLoader."""
    by = grown(case.grew(DATA))
    return Answer(
        Kind.DATA_STARVED,
        Confidence.LIKELY,
        f"{by} of it in the DataLoader while nothing computes",
        chain=("the DataLoader delivers late -> nothing is launched -> steps are slow",),
        next_steps=("# how long does one sample take to read, and does storage throttle?",),
        recommendations=(
            Recommendation("training", "prefetch deeper, more loader workers, tokenise beforehand"),
        ),
    )


def compute_grew_on_few(case: Case) -> Answer:
    """Slow matrix kernels on few ranks: a slow clock if the kernels are the same, else other work."""
    work = case.few[0]
    by = grown(case.grew(COMPUTE))
    factor = slowed_evenly(work.then.work, work.now.work)
    if factor is None:
        names = grown_names(changes(work.then.work, work.now.work, matrix=True))
        return Answer(
            Kind.STRAGGLER,
            _certainty(case),
            f"its matrix kernels take {by} a step, not all alike ({names})",
            site="compute",
            category=Category.SOFTWARE,
            chain=("few ranks compute more, or otherwise -> they come late to every collective -> all wait",),
            next_steps=("# does this rank get other shapes: longer sequences, more experts, another stage?",),
        )
    hardware = case.now.on_device
    return Answer(
        Kind.STRAGGLER,
        _certainty(case),
        f"its matrix work takes {by} a step, every kernel {factor:.2f} times as long as then at equal counts"
        + (", as with a throttled clock" if hardware else ""),
        site="throttle" if hardware else "compute",
        category=Category.GPU if hardware else Category.SOFTWARE,
        chain=("matrix kernels slow down on few ranks -> they come late to every collective -> all wait",),
        next_steps=(
            f"{CLOCKS}   # on its node" if hardware else "top -H   # on its node: who else computes there?",
        ),
        recommendations=(
            (
                Recommendation(
                    "hardware", "take the node out; look at clocks, temperature, power, link errors"
                ),
            )
            if hardware
            else ()
        ),
    )


def compute_grew(case: Case) -> Answer:
    """On all ranks alike, or on the only one that is known: the trace cannot tell clocks from work."""
    work = case.few[0]
    by = grown(case.grew(COMPUTE))
    factor = slowed_evenly(work.then.work, work.now.work)
    who = "the only rank that was traced" if case.alone else "all traced ranks alike"
    if factor is not None:
        says = (
            f"{by} of it in matrix work on {who}, every kernel {factor:.2f} times as long at equal counts: "
            "a lower clock rather than other work"
        )
    else:
        names = grown_names(changes(work.then.work, work.now.work, matrix=True))
        says = f"{by} of it in matrix work on {who}, not all kernels alike ({names}): other kernels or shapes"
    return Answer(
        Kind.INCONCLUSIVE,
        Confidence.POSSIBLE,
        says,
        next_steps=(
            *(("# traces of other ranks: is it this card only?",) if case.alone else ()),
            f"{CLOCKS}   # on every node" if case.now.on_device else "top -H   # who else computes there?",
            "# same batch, sequence length, precision, compile mode and library versions as then?",
        ),
    )


def kernels_grew(case: Case, bucket: str) -> Answer:
    """Recomputation or kernels that do no matrix work: which ones, is all that a trace can say."""
    work = case.few[0]
    found = changes(work.then.work, work.now.work, matrix=None if bucket == RECOMPUTE else False)
    names = grown_names(found) or "none stands out"
    what = "recomputing activations" if bucket == RECOMPUTE else "kernels that do no matrix work"
    by = grown(case.grew(bucket))
    late = bool(case.decision.late)
    ask = {
        RECOMPUTE: "# was activation checkpointing widened, or its policy changed?",
        KERNELS: "# which code launches these? fusion lost, a copy added, another compile mode?",
    }
    return Answer(
        Kind.STRAGGLER if late else Kind.INCONCLUSIVE,
        _certainty(case) if late else Confidence.POSSIBLE,
        f"{by} of it in {what} ({names})",
        site="compute" if late else None,
        next_steps=(ask[bucket],),
    )


def _certainty(case: Case) -> Confidence:
    """Two ranks that agree on whom they wait for make it likely (DIAGNOSIS)."""
    return Confidence.LIKELY if len(case.found) - len(case.decision.late) >= 2 else Confidence.POSSIBLE
