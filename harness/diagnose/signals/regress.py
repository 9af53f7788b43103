"""Two runs compared by their step records: which part of a step grew since, on few ranks or on all."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from harness.diagnose.gathered import Gathered
from harness.diagnose.signals.apart import (
    APART,
    Apart,
    convicts,
    excess,
    grew_apart,
    noise,
    outgrew,
    same_ranks,
)
from harness.diagnose.signals.checkpoints import NOTICEABLE_S
from harness.diagnose.signals.history import OUTPUT, OWN
from harness.diagnose.signals.medians import middle
from harness.diagnose.signals.side import LEAST_SAVES, REST, SAVE, STEP, WAIT, Side, read_side
from harness.diagnose.signals.wording import cite, seconds, share, size, verb, who
from harness.model.comparison import SAVE_ROW, Bucket, ComparedResult, Comparison, RankBuckets
from harness.model.diagnosis import Citation, Diagnosis, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

PARTS = {
    STEP: "step time",
    "compute_s": "compute",
    "data_wait_s": "data wait",
    WAIT: "exposed communication",
    REST: "host code besides",
    SAVE: SAVE_ROW,
}
"""Parts of a step as recorded, and their names; those between the first and the last add up to the first."""

FEW_RANKS = (
    ("data_wait_s", Kind.DATA_STARVED, "dataloader"),
    ("compute_s", Kind.STRAGGLER, "compute"),
    (REST, Kind.STRAGGLER, "host"),
)
"""By which parts ranks can grow apart, and what that is, most telling first."""


def compare_runs(now: Sequence[Path], then: Path, world_size: int | None = None) -> ComparedResult:
    """Compare a run with an earlier one. What the run's own evidence says of it comes first.

    Raises:
        PrerequisiteError: nothing readable on a side, or no step records there.
    """
    from harness.diagnose.api import conclude, read_evidence

    gathered, before = read_evidence(now, world_size), read_evidence([then], world_size)
    own = conclude(gathered).diagnosis
    old = read_side(str(then), before.signals.steps, whole=True)
    new = read_side(", ".join(str(path) for path in now), gathered.signals.steps)
    return ComparedResult(_diagnosis(own, old, new, gathered), _comparison(old, new))


def _diagnosis(own: Diagnosis, then: Side, now: Side, gathered: Gathered) -> Diagnosis:
    """The run's own answer, unless it found nothing, or only suspects whose past can be looked up."""
    from harness.diagnose.api import conclude

    only_suspects = own.kind in (Kind.STRAGGLER, Kind.DATA_STARVED) and own.suspects and not own.culprits
    if own.kind not in (Kind.HEALTHY, Kind.INCONCLUSIVE) and not only_suspects:
        return own
    short = _too_short(then, now)
    if only_suspects:
        if short or not same_ranks(then, now):
            why = short.summary if short else _other_ranks(then, now)
            return dataclasses.replace(own, summary=f"{own.summary}; {why}")
        if _as_slow_then(own, then, now):
            return conclude(gathered, _cleared(own, then, now, gathered.on_cpus)).diagnosis
        convicted = _convicted(own, then, now)
        return conclude(gathered, convicted).diagnosis if convicted else own
    finding = short or _decide(then, now, gathered.on_cpus)
    return _merged(own, conclude(gathered, finding).diagnosis)


def _merged(own: Diagnosis, compared: Diagnosis) -> Diagnosis:
    """The comparison's answer; where it finds nothing, what the run's own evidence said stands."""
    if own.kind is Kind.INCONCLUSIVE and compared.kind in (Kind.HEALTHY, Kind.INCONCLUSIVE):
        return dataclasses.replace(own, summary=f"{own.summary}; {compared.summary}")
    return compared


def _too_short(then: Side, now: Side) -> Finding | None:
    """Too few records on a side say nothing."""
    least = now.steps.limits.least_records
    if min(then.records, now.records) >= least:
        return None
    return _open(
        f"too few steps to compare: {now.records} records a rank after this run's warm-up, {then.records} "
        f"after the earlier one's, and at least {least} are needed on each side"
    )


def _open(summary: str) -> Finding:
    return Finding("signal", Kind.INCONCLUSIVE, Confidence.POSSIBLE, summary)


def _other_ranks(then: Side, now: Side) -> str:
    """What cannot be said because the ranks differ."""
    if len(then.ranks) == len(now.ranks):
        here, there = format_ranks(now.ranks), format_ranks(then.ranks)
        return f"this run has steps of ranks {here}, the earlier one of ranks {there}"
    return f"this run has steps of {len(now.ranks)} ranks, the earlier one of {len(then.ranks)}"


def _suspected_part(own: Diagnosis) -> str:
    """The part by which the run's own suspects are slow."""
    if own.kind is Kind.DATA_STARVED:
        return "data_wait_s"
    return REST if own.where.site == "host" else "compute_s"


def _as_slow_then(own: Diagnosis, then: Side, now: Side) -> bool:
    """Whether all suspects were behind the median rank by as large a share of a step in the earlier run."""
    part = _suspected_part(own)
    return all(
        0 < excess(now, part, r) / now.step_s <= APART * excess(then, part, r) / then.step_s
        for r in own.suspects
    )


def _cleared(own: Diagnosis, then: Side, now: Side, on_cpus: bool) -> Finding:
    """What else the comparison says, once it is known that the suspects always were so."""
    part = _suspected_part(own)
    ranks = own.suspects
    because = (
        f"{who(ranks)} {verb(ranks, 'was', 'were')} as slow in the earlier run "
        f"({_against_peers(then, part, ranks)} then, {_against_peers(now, part, ranks)} now): "
        f"that is {verb(ranks, 'its', 'their')} part in the job"
    )
    found = _decide(then, now, on_cpus)
    return dataclasses.replace(
        found,
        summary=f"{because}; {found.summary}",
        evidence=(*found.evidence, *(_cite(then, now, r, part) for r in ranks[:3])),
        ruled_out=(RuledOut(own.kind, because), *(r for r in found.ruled_out if r.kind is not own.kind)),
    )


def _against_peers(side: Side, part: str, ranks: Sequence[int]) -> str:
    mine = middle(np.array([side.of(r, part) for r in ranks]))
    return f"{PARTS[part]} {seconds(mine)} against {seconds(side.typical[part])} a step"


def _convicted(own: Diagnosis, then: Side, now: Side) -> Finding | None:
    """The run's own suspects that outgrew the others since the earlier run; None if nothing shows that."""
    part = _suspected_part(own)
    if not (then.knows(part) and now.knows(part)):
        return None
    grown = tuple(r for r in own.suspects if outgrew(then, now, part, r))
    if not grown or not convicts(then, now, part, grown):
        return None
    before = middle(np.array([then.of(r, part) for r in grown]))
    return Finding(
        source="signal",
        kind=own.kind,
        confidence=Confidence.LIKELY,
        summary=(
            f"{own.summary}; in the earlier run {who(grown)} took {seconds(before)} of {PARTS[part]} a step, "
            f"the median rank {seconds(then.typical[part])}"
        ),
        culprits=grown,
        victims=tuple(r for r in now.steps.ranks if r not in grown),
        where=dataclasses.replace(own.where, hosts=()),
        evidence=(*(_cite(then, now, r, part) for r in grown[:3]), *own.evidence),
        chain=own.chain,
        ruled_out=own.ruled_out,
    )


def _comparison(then: Side, now: Side) -> Comparison:
    return Comparison(
        what="runs",
        unit="seconds a step",
        then=f"{then.name} ({_extent(then)})",
        now=f"{now.name} ({_extent(now)})",
        rows=_buckets(then.typical, now.typical),
        ranks=tuple(
            RankBuckets(rank, _buckets(then.ranks[rank], now.ranks[rank]))
            for rank in sorted(then.ranks.keys() & now.ranks.keys())
        ),
    )


def _extent(side: Side) -> str:
    steps = side.steps
    first = steps.first + side.cells.start * steps.width
    last = min(steps.last, steps.first + side.cells.stop * steps.width - 1)
    return f"{len(steps.ranks)} ranks, steps {first}-{last}"


def _buckets(then: Mapping[str, float], now: Mapping[str, float]) -> tuple[Bucket, ...]:
    return tuple(
        Bucket(name, _known(then.get(part)), _known(now.get(part)))
        for part, name in PARTS.items()
        if part in then or part in now
    )


def _known(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value


def _decide(then: Side, now: Side, on_cpus: bool) -> Finding:
    """Few ranks or all first; then the part that grew most, and which suspect that part means."""
    for part, kind, site in FEW_RANKS:
        if found := grew_apart(then, now, part):
            return _few_ranks(then, now, found, kind, site)
    grown = {part: _cost(then, now, part) for part in PARTS if part != STEP}
    if not same_ranks(then, now):
        grown = {part: cost for part, cost in grown.items() if part in ("data_wait_s", SAVE)}
    part = max(grown, key=lambda p: grown[p])
    if grown[part]:
        return _all_ranks(then, now, part, on_cpus)
    if not same_ranks(then, now):
        return _not_alike(then, now)
    return _unchanged(then, now)


def _cost(then: Side, now: Side, part: str) -> float:
    """By how many seconds a step a part of the median rank grew beyond noise; 0 if it did not."""
    if not (then.knows(part) and now.knows(part)):
        return 0.0
    grown = now.typical[part] - then.typical[part]
    if part == SAVE:
        # One save against one save: that a run saves more often makes no save slow.
        slow = now.typical[SAVE] > now.steps.limits.slow_save * then.typical[SAVE] and grown > NOTICEABLE_S
        enough = min(then.saves, now.saves) >= LEAST_SAVES
        return grown * now.saves / now.spans if slow and enough else 0.0
    return grown if grown > noise(then, now, part) else 0.0


def _few_ranks(then: Side, now: Side, found: Apart, kind: Kind, site: str) -> Finding:
    part, ranks = found.part, found.ranks
    worst = max(ranks, key=lambda r: now.of(r, part) - then.of(r, part))
    before, after = then.of(worst, part), now.of(worst, part)
    factor = after / now.typical[part] if now.typical[part] > 0 else None
    cost = excess(now, part, worst) / now.step_s
    return Finding(
        source="signal",
        kind=kind,
        confidence=Confidence.LIKELY if found.convicts else Confidence.POSSIBLE,
        summary=(
            f"{who(ranks)} {verb(ranks, 'spends', 'spend')} {seconds(after)} a step on {PARTS[part]}, "
            f"{seconds(before)} in the earlier run; the median rank {seconds(now.typical[part])}: "
            f"{share(cost)} of each step"
        ),
        culprits=ranks if found.convicts else (),
        suspects=() if found.convicts else ranks,
        victims=tuple(r for r in now.steps.ranks if r not in ranks),
        where=Where(site=site, factor=factor, cost=cost),
        evidence=tuple(_cite(then, now, r, part) for r in ranks[:3]),
    )


def _all_ranks(then: Side, now: Side, part: str, on_cpus: bool) -> Finding:
    kind, because = _meaning(then, now, part, on_cpus)
    if not same_ranks(then, now):
        because = f"{because}; {_other_ranks(then, now)}"
    return Finding(
        source="signal",
        kind=kind,
        confidence=Confidence.POSSIBLE if kind is Kind.INCONCLUSIVE else Confidence.LIKELY,
        summary=f"{_grown(then, now, part)}{because}",
        victims=now.steps.ranks,
        where=Where(
            site="dataloader" if kind is Kind.DATA_STARVED else None,
            cost=_cost(then, now, part) / now.step_s,
        ),
        evidence=tuple(_cite(then, now, r, part) for r in now.steps.ranks[:3]),
        ruled_out=(RuledOut(Kind.STRAGGLER, "no rank grew apart from the others"),)
        if same_ranks(then, now) and not (part == WAIT and _uneven(then, now))
        else (),
    )


def _grown(then: Side, now: Side, part: str) -> str:
    before, after = then.typical[part], now.typical[part]
    if part == SAVE:
        return f"a save takes {seconds(after)}, {seconds(before)} in the earlier run"
    return (
        f"{PARTS[part]} grew on all ranks, from {seconds(before)} to {seconds(after)} a step (steps take "
        f"{seconds(now.step_s)}, {seconds(then.step_s)} in the earlier run)"
    )


def _meaning(then: Side, now: Side, part: str, on_cpus: bool) -> tuple[Kind, str]:
    """Which suspect a part means. Source: the first seed's table of the parts of two traces."""
    if part == "data_wait_s":
        return Kind.DATA_STARVED, ""
    if part == SAVE:
        return Kind.CHECKPOINT_SLOW, ""
    if part == WAIT and on_cpus:
        return Kind.INCONCLUSIVE, ": on CPUs the network is the same cores, and a busy machine looks alike"
    if part == WAIT and _uneven(then, now):
        return Kind.INCONCLUSIVE, ": in each step some ranks come later than the others, and did not then"
    if part == WAIT:
        return Kind.COMM_SLOW, ""
    if part == "compute_s":
        return Kind.INCONCLUSIVE, ": look at the clocks of all cards, and at what changed in model and shapes"
    for field, kind, times in (
        ("mem_inactive_split", Kind.MEMORY_FRAGMENTATION, 2.0),
        (OUTPUT, Kind.LOG_FLOOD, 10.0),
    ):
        before, after = (
            middle(s.steps.matrix(field)[:, s.cells]) if s.steps.has(field) else np.nan for s in (then, now)
        )
        if after > times * before:
            return kind, f"; {field} is {size(after)}, {size(before)} then"
    return Kind.INCONCLUSIVE, ": neither memory nor output explains it; sample stacks: drill collect"


def _uneven(then: Side, now: Side) -> bool:
    """Whether the latest rank of each stretch explains half of what the wait grew by: no network does."""
    leads = []
    for side in (then, now):
        own = side.parts.get(OWN, side.parts.get("compute_s"))
        if own is None:
            return False
        columns = [column[~np.isnan(column)] for column in own.T]
        leads.append(middle(np.array([np.max(c) - np.median(c) for c in columns if len(c)])))
    return bool(leads[1] - leads[0] > (now.typical[WAIT] - then.typical[WAIT]) / 2)


def _not_alike(then: Side, now: Side) -> Finding:
    """Two jobs of different size: their steps may differ for that alone."""
    grown = [part for part in PARTS if part not in (STEP, SAVE) and _cost(then, now, part)]
    what = [f"{PARTS[p]} {seconds(then.typical[p])} then, {seconds(now.typical[p])} now" for p in grown]
    differ = f" ({', '.join(what)})" if what else ""
    return _open(
        f"{_other_ranks(then, now)}: steps take {seconds(now.step_s)}, {seconds(then.step_s)} then{differ}, "
        "which the other ranks may explain; compare runs of the same ranks"
    )


def _unchanged(then: Side, now: Side) -> Finding:
    return Finding(
        source="signal",
        kind=Kind.HEALTHY,
        confidence=Confidence.LIKELY,
        summary=f"no part of a step grew beyond noise: steps take {seconds(now.step_s)}, "
        f"{seconds(then.step_s)} then",
    )


def _cite(then: Side, now: Side, rank: int, part: str) -> Citation:
    field = {REST: STEP, SAVE: "ckpt_duration_s"}.get(part, part)
    each = "" if part == SAVE else " a step"
    before, after = then.of(rank, part), now.of(rank, part)
    said = f"rank {rank}: {PARTS[part]} {seconds(after)}{each}, {seconds(before)} then"
    return cite(now.steps, rank, f"{said} ({field})")
