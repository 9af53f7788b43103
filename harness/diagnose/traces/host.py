"""The device idles while the CPU does something: what a trace says about that, and what it cannot say."""

from harness.diagnose.traces.answer import Answer, Case
from harness.diagnose.traces.breakdown import HOST
from harness.diagnose.traces.words import grown
from harness.model.diagnosis import Recommendation
from harness.model.kinds import Confidence, Kind

ALLOCATIONS = 1.0
"""More calls for device memory in a step than this: an allocator that has settled makes none."""
EXPLAINS = 0.5
"""Output explains a longer host part if it grew by at least this share of it."""


def host_grew(case: Case) -> Answer:
    """An allocator that retries, or output: only if the trace itself shows it; else what would tell."""
    by_s = case.grew(HOST)
    idle = "the device idles" if case.now.on_device else "the training thread is in no operation"
    then = max(g.then.work.allocations for g in case.few)
    now = max(g.now.work.allocations for g in case.few)
    if now - then >= ALLOCATIONS and now > 2 * then:
        spent = max(g.now.work.allocation_s - g.then.work.allocation_s for g in case.few)
        return Answer(
            Kind.MEMORY_FRAGMENTATION,
            Confidence.POSSIBLE,
            f"the device idles {grown(by_s)} a step, and the allocator goes to the device {now:.3g} times "
            f"a step instead of {then:.3g}",
            chain=(
                f"the allocator's calls for device memory take {grown(spent)} a step",
                "-> each of them waits for the device -> the device idles -> steps are slow",
            ),
            next_steps=(
                "# num_alloc_retries and inactive_split_bytes in the step records: do they rise?",
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True   # before the next start",
            ),
            recommendations=(
                Recommendation(
                    "training", "expandable segments, fixed shapes, no large odd-sized temporaries"
                ),
            ),
        )
    writes_s = max(g.now.work.logging_s - g.then.work.logging_s for g in case.few)
    if writes_s >= EXPLAINS * by_s:
        return Answer(
            Kind.LOG_FLOOD,
            Confidence.POSSIBLE,
            f"{idle} {grown(by_s)} a step, and Python spends {grown(writes_s)} a step writing output",
            chain=("output on the training thread -> nothing is launched -> nothing computes",),
            next_steps=("# bytes of stdout a step, and which line repeats",),
            recommendations=(
                Recommendation(
                    "training", "limit repeated warnings, log on rank 0, write from another thread"
                ),
            ),
        )
    return Answer(
        Kind.INCONCLUSIVE,
        Confidence.POSSIBLE,
        f"{idle} {grown(by_s)} a step while the CPU is outside the DataLoader: the allocator, output or "
        "Python; the trace does not show which",
        next_steps=(
            "py-spy record --pid PID --duration 30 --format raw -o shares.txt   # what the main thread does",
            "# num_alloc_retries in the step records: above 0 and rising is fragmentation",
            "# bytes of stdout a step: ten times more than before is a log flood",
            "# profile again with with_stack=True, profile_memory=True",
        ),
    )
