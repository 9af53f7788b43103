"""What step records say: numbers that are wrong, then few ranks or all, then what grows."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain

from harness.diagnose.signals.checkpoints import failed_save, slow_save
from harness.diagnose.signals.dragging import dragging
from harness.diagnose.signals.everybody import all_starved, few_starved, slow_exchange, slower
from harness.diagnose.signals.formats.foreign import TimerRow
from harness.diagnose.signals.history import RankHistory
from harness.diagnose.signals.memory import fragmentation, leak
from harness.diagnose.signals.numerics import not_finite
from harness.diagnose.signals.output import flood
from harness.diagnose.signals.positions import rewound
from harness.diagnose.signals.replicas import odd_replica
from harness.diagnose.signals.result import Circumstances, SignalsResult
from harness.diagnose.signals.steps import Steps
from harness.diagnose.signals.stragglers import straggler
from harness.diagnose.signals.thresholds import Thresholds
from harness.diagnose.signals.timers import always_last
from harness.model.finding import Finding
from harness.model.kinds import Kind
from harness.model.ranks import format_ranks

LAG_STEPS = 10


def weigh_steps(
    attempts: Mapping[int, Sequence[RankHistory]],
    around: Circumstances,
    timers: Sequence[TimerRow],
    limits: Thresholds,
) -> SignalsResult:
    """As `analyse_steps`."""
    reported = always_last(timers, around.world_size)
    if not attempts:
        return SignalsResult(findings=(reported,) if reported else ())
    last = Steps(attempts[max(attempts)], limits)
    numbers = [f for f in (odd_replica(last.histories), not_finite(last.histories)) if f]
    # What came first is the cause: a flipped bit may end in NaN, and digests of NaN differ.
    numbers.sort(key=lambda f: (f.where.step or 0, f.kind is not Kind.LOSS_NOT_FINITE))
    certain = [*numbers, rewound(attempts), failed_save(last)]
    earlier = (Steps(attempts[n], limits) for n in sorted(attempts, reverse=True)[1:])
    steps = next((s for s in chain((last,), earlier) if s.windows), last)
    slopes = _slopes(steps, around) if steps.windows else []
    if steps.attempt != last.attempt:
        slopes = [f and _of_an_earlier_start(f, steps.attempt) for f in slopes]
    return SignalsResult(
        steps=last,
        findings=tuple(f for f in (*certain, *slopes, reported) if f),
        missing=_missing(steps, around),
    )


def _of_an_earlier_start(finding: Finding, attempt: int) -> Finding:
    """A finding that is of a start of the job which is over, said as that."""
    return dataclasses.replace(
        finding, summary=f"in start {attempt}, before the last restart: {finding.summary}"
    )


def _slopes(steps: Steps, around: Circumstances) -> list[Finding | None]:
    """Few ranks or all first. Few: what they do meanwhile. All: data, memory, output, saves, the network."""
    found = dragging(steps)
    few = found if 2 * len(found) < len(steps.ranks) else ()
    drag = straggler(steps, few, around.alike)
    named = {d.rank for d in few}
    splits, floods = fragmentation(steps), flood(steps, named)
    # A rank that drags because its allocator or its log does is that.
    explained = [f for f in (floods, splits) if f and (not named or named <= {*f.culprits})]
    everybody = [] if few else [few_starved(steps), all_starved(steps)]
    rest = [slow_save(steps), leak(steps, around.host_bytes)]
    # On CPUs the network is the same CPUs: that they are busy is no network's fault, nor are slow steps news.
    network = [] if few or around.on_cpus else [slow_exchange(steps, around.world_size)]
    unexplained = [] if around.on_cpus else [slower(steps, found)]
    return [*explained, drag, *everybody, splits, floods, *rest, *network, *unexplained]


def _missing(steps: Steps, around: Circumstances) -> tuple[str, ...]:
    """What the records lack, and what could therefore not be asked."""
    lines = []
    absent = sorted(set(range(around.world_size)) - set(steps.ranks))
    if absent and steps.ranks:
        lines.append(f"no step records of rank {format_ranks(absent)}")
    ends = {h.rank: int(h.steps[-1]) for h in steps.histories}
    short = [r for r, step in ends.items() if max(ends.values()) - step > max(LAG_STEPS, steps.width)]
    if short:
        last = max(ends[r] for r in short)
        lines.append(
            f"records of rank {format_ranks(short)} end at step {last}, others at {max(ends.values())}"
        )
    if steps.windows is None and steps.ranks:
        count = max(h.records for h in steps.histories)
        lines.append(f"{count} step records a rank: too few to compare with the run's own beginning")
    elif steps.ranks and not steps.has("comm_wait_s") and len(steps.ranks) > 1:
        lines.append("step records without comm_wait_s: a rank that drags cannot be told from those who wait")
    for history in steps.histories:
        for jump in history.clock_jumps[:1]:
            lines.append(
                f"{history.file}:{jump.line}: the clock of rank {history.rank} jumped by {jump.value:+.0f} s "
                f"at step {jump.step}: times are not compared across it"
            )
    return tuple(lines[:20])
