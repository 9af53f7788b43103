"""Two sides of profiler traces to one diagnosis and one table."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.diagnose.flight.parallel import OnProgress
from harness.diagnose.traces.answer import Answer, Case
from harness.diagnose.traces.breakdown import BUCKETS, DATA, EXPOSED, HOST, STRAGGLER
from harness.diagnose.traces.decide import decide
from harness.diagnose.traces.explain import explain
from harness.diagnose.traces.growth import Growth, RankGrowth, growths
from harness.diagnose.traces.sides import Side, read_side
from harness.diagnose.traces.words import grown, ranks_text, seconds, steps_text
from harness.model.comparison import Bucket, ComparedResult, Comparison, RankBuckets
from harness.model.diagnosis import Citation, Diagnosis, Job, RankCensus, RuledOut, Where
from harness.model.errors import UsageError
from harness.model.kinds import Confidence, Kind, category_of
from harness.model.ranks import format_ranks

STEP = "step"
FEW_STEPS = 3
"""Fewer steps a trace than this say nothing about chance: no conclusion from them is more than possible."""

_SOURCE = "signal"
_RULES_OUT = {
    DATA: Kind.DATA_STARVED,
    EXPOSED: Kind.COMM_SLOW,
    STRAGGLER: Kind.STRAGGLER,
    HOST: Kind.MEMORY_FRAGMENTATION,
}


def compare_traces(
    now: Sequence[Path],
    then: Path,
    world_size: int | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> ComparedResult:
    """Cut both sides' steps into parts, and say which part grew and why.

    `world_size` counts only where no trace records it.

    Raises:
        PrerequisiteError: one side has no usable trace.
        UsageError: one side was traced on a device, the other without one.
    """
    old, new = read_side([then], None, on_progress), read_side(now, world_size, on_progress)
    if old.on_device != new.on_device:
        with_device, without = (now[0], then) if new.on_device else (then, now[0])
        raise UsageError(
            f"{with_device} holds kernels of a device, {without} none: compare traces of like jobs, "
            "recorded with the same activities"
        )
    found = growths(old, new)
    case = Case(old, new, found, decide(found))
    answer = explain(case)
    return ComparedResult(_diagnosis(case, answer, world_size), _comparison(case, now, then))


def _diagnosis(case: Case, answer: Answer, world_size: int | None) -> Diagnosis:
    late = case.decision.late if answer.kind is not Kind.INCONCLUSIVE else ()
    traced = set(case.now.breakdowns)
    files = [file for g in _shown(case) for file in (g.now.file, g.then.file)]
    return Diagnosis(
        kind=answer.kind,
        category=answer.category or category_of(answer.kind, answer.site),
        confidence=_confidence(case, answer),
        summary=_summary(case, answer),
        culprits=late if answer.convicts else (),
        suspects=() if answer.convicts else late,
        victims=tuple(sorted(traced - set(late))) if late else (),
        where=Where(site=answer.site),
        ranks=RankCensus(
            expected=case.now.world_size,
            with_evidence=format_ranks(traced),
            missing=format_ranks(case.untraced),
        ),
        job=Job(framework="torch"),
        evidence=_evidence(case),
        ruled_out=_ruled_out(case, answer),
        chain=answer.chain,
        next_steps=answer.next_steps,
        recommendations=answer.recommendations,
        key_files=tuple(dict.fromkeys(files)),
        missing_evidence=_missing(case),
    )


def _summary(case: Case, answer: Answer) -> str:
    step = case.decision.step
    if not case.decision.slower:
        return f"Steps take {seconds(step.now_s)}, {seconds(step.then_s)} before: {answer.says}."
    who = f"{ranks_text(format_ranks(case.decision.late))} is late: " if case.decision.late else ""
    if len(case.decision.late) > 1:
        who = who.replace(" is late", " are late")
    return f"Steps take {seconds(step.now_s)} instead of {seconds(step.then_s)}: {who}{answer.says}."


def _confidence(case: Case, answer: Answer) -> Confidence:
    sides = [*case.now.breakdowns.values(), *case.then.breakdowns.values()]
    few = any(len(b.steps) < FEW_STEPS for b in sides)
    return Confidence.POSSIBLE if few or case.now.broken or case.then.broken else answer.confidence


def _shown(case: Case) -> tuple[RankGrowth, ...]:
    """The ranks whose figures are cited: the late ones and one that waits for them."""
    late = case.decision.late
    if not late:
        return case.found[:2]
    return (*case.few[:2], *[g for g in case.found if g.rank not in late][:1])


def _evidence(case: Case) -> tuple[Citation, ...]:
    cited = []
    for growth in _shown(case):
        parts = {n: p for n, p in growth.parts.items() if p.is_real or n == case.decision.bucket}
        said = [f"{STEP} {_figures(growth.step)}", *(f"{n} {_figures(p)}" for n, p in parts.items())]
        now, then = growth.now, growth.then
        cited.append(
            Citation(_SOURCE, f"now, {steps_text(now.steps)}: {'; '.join(said)}", now.file, rank=now.rank)
        )
        before = [
            f"{STEP} {seconds(growth.step.then_s)}",
            *(f"{n} {seconds(p.then_s)}" for n, p in parts.items()),
        ]
        text = f"then, {steps_text(then.steps)}: {'; '.join(before)}"
        cited.append(Citation(_SOURCE, text, then.file, rank=then.rank))
    return tuple(cited)


def _figures(growth: Growth) -> str:
    return f"{seconds(growth.now_s)} ({grown(growth.by_s)})"


def _ruled_out(case: Case, answer: Answer) -> tuple[RuledOut, ...]:
    """Explanations whose part of the step did not grow on any rank."""
    ruled = []
    for bucket, kind in _RULES_OUT.items():
        if kind is answer.kind or any(g.parts[bucket].is_real for g in case.found):
            continue
        if kind is Kind.STRAGGLER and case.alone:
            # Who is late itself waits for nobody.
            continue
        part = case.decision.parts[bucket]
        ruled.append(
            RuledOut(kind, f"{bucket} {grown(part.by_s)} a step, within noise ({seconds(part.noise_s)})")
        )
    return tuple(ruled)


def _missing(case: Case) -> tuple[str, ...]:
    said = [f"no trace of {ranks_text(format_ranks(case.untraced))}"] if case.untraced else []
    strangers = [rank for rank in case.now.breakdowns if rank not in case.then.breakdowns]
    if strangers:
        compared = [g.then.rank for g in case.found if not g.is_own]
        instead = f"compared with rank {compared[0]}" if compared else "left out"
        said.append(f"no old trace of {ranks_text(format_ranks(strangers))}: {instead}")
    sizes = case.then.world_size, case.now.world_size
    if None not in sizes and sizes[0] != sizes[1]:
        said.append(f"{sizes[0]} ranks then, {sizes[1]} now: communication differs by that alone")
    said += [f"then: {words}" for words in case.then.said]
    said += [f"now: {words}" for words in case.now.said]
    return tuple(said)


def _comparison(case: Case, now: Sequence[Path], then: Path) -> Comparison:
    decision = case.decision
    return Comparison(
        what="traces",
        unit="seconds a step, median over steps",
        then=_label(case.then, [then]),
        now=_label(case.now, now),
        rows=_rows(decision.step, decision.parts),
        ranks=tuple(RankBuckets(g.rank, _rows(g.step, g.parts)) for g in case.found),
    )


def _rows(step: Growth, parts: Mapping[str, Growth]) -> tuple[Bucket, ...]:
    """The parts, and the step last. Medians: the parts of each step add up to it exactly, these nearly."""
    rows = {**{name: parts[name] for name in BUCKETS}, STEP: step}
    return tuple(Bucket(name, growth.then_s, growth.now_s) for name, growth in rows.items())


def _label(side: Side, paths: Sequence[Path]) -> str:
    some = next(iter(side.breakdowns.values()))
    ranks = ranks_text(format_ranks(side.breakdowns))
    return f"{', '.join(map(str, paths))} ({ranks}, {steps_text(some.steps)})"
