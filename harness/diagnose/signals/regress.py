"""Two runs compared by their step records: which part of a step grew since, on few ranks or on all."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.diagnose.signals.columns import Floats
from harness.diagnose.signals.history import OUTPUT, OWN
from harness.diagnose.signals.steps import WARM_UP_STEPS, Steps
from harness.diagnose.signals.wording import cite, seconds, share, size, verb, who
from harness.model.comparison import Bucket, ComparedResult, Comparison, RankBuckets
from harness.model.diagnosis import Citation, Diagnosis, RuledOut, Where
from harness.model.errors import PrerequisiteError
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

PARTS = {
    "step_time_s": "step time",
    "compute_s": "compute",
    "data_wait_s": "data wait",
    "comm_wait_s": "exposed communication",
    "save_s": "checkpoints",
    "rest_s": "host code besides",
}
"""Parts of a step as recorded, and their names; all but the first add up to it."""

GREW = 0.02
"""Less than this share of the old step is noise (DIAGNOSIS, thresholds: jitter)."""

SPREADS = 3.0
"""And less than so many robust standard deviations of the old run's own stretches."""

APART = 1.2
"""A rank that grew by so much more than the median rank is one of few."""


@dataclass(frozen=True)
class Side:
    """One run's typical step: seconds by part, for each rank and for the median rank, and their spread."""

    name: str
    steps: Steps
    ranks: Mapping[int, Mapping[str, float]]
    typical: Mapping[str, float]
    spread: Mapping[str, float]
    cells: slice


def compare_runs(now: Sequence[Path], then: Path, world_size: int | None = None) -> ComparedResult:
    """Compare a run with an earlier one. What the run's own evidence says of it comes first.

    Raises:
        PrerequisiteError: nothing readable on a side, or no step records there.
    """
    from harness.diagnose.api import conclude, read_evidence

    gathered, before = read_evidence(now, world_size), read_evidence([then], world_size)
    result = conclude(gathered)
    sides = (_side(str(then), before.signals.steps, whole=True), _side(_names(now), gathered.signals.steps))
    comparison = _comparison(*sides)
    if result.diagnosis.kind not in (Kind.HEALTHY, Kind.INCONCLUSIVE):
        return ComparedResult(result.diagnosis, comparison)
    finding = _decide(*sides, gathered.on_cpus)
    return ComparedResult(_merged(result.diagnosis, conclude(gathered, finding).diagnosis), comparison)


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)


def _merged(own: Diagnosis, compared: Diagnosis) -> Diagnosis:
    """The comparison's answer; where it finds nothing, what the run's own evidence said stands."""
    if compared.kind is Kind.HEALTHY and own.kind is Kind.INCONCLUSIVE:
        return dataclasses.replace(own, summary=f"{own.summary}; {compared.summary}")
    return compared


def _side(name: str, steps: Steps, whole: bool = False) -> Side:
    """A run's typical step: over the whole run but its warm-up, or in its present window."""
    if not steps.histories or not steps.has("step_time_s"):
        raise PrerequisiteError(
            f"{name}: no step records there: give a run with signals, or its frameworks' logs"
        )
    skip = -(-WARM_UP_STEPS // steps.width)
    columns = steps.matrix("step_time_s").shape[1]
    cells = slice(min(skip, columns - 1), columns)
    if steps.windows and not whole:
        cells = steps.windows[1].cells
    parts = _parts(steps, cells)
    typical = {part: _middle(np.nanmedian, values) for part, values in parts.items()}
    ranks = {
        rank: {part: _middle(np.nanmedian, values[row]) for part, values in parts.items()}
        for row, rank in enumerate(steps.ranks)
    }
    spread = {part: _deviation(values) for part, values in parts.items()}
    return Side(name, steps, ranks, typical, spread, cells)


def _parts(steps: Steps, cells: slice) -> dict[str, Floats]:
    """Seconds a step by part, shape [ranks, stretches]; the rest is what no other part explains."""
    known = [f for f in ("step_time_s", "compute_s", "data_wait_s", "comm_wait_s") if steps.has(f)]
    parts = {field: steps.matrix(field)[:, cells] for field in known}
    if steps.has(OWN):
        own = steps.matrix(OWN)[:, cells]
        parts["rest_s"] = own - sum(parts[f] for f in ("compute_s", "data_wait_s") if f in parts)
    saves = [
        sum(s.duration_s for s in h.saves) / max(1, int(h.steps[-1] - h.steps[0]) + 1)
        for h in steps.histories
    ]
    if any(saves):
        parts["save_s"] = np.array(saves)[:, None]
    return parts


def _middle(function: Callable[[Floats], object], values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _deviation(values: Floats) -> float:
    """Robust standard deviation over stretches of the median rank. Source: 1.4826 x median deviation."""
    row = np.array([_middle(np.median, column) for column in values.T])
    known = row[~np.isnan(row)]
    return 1.4826 * float(np.median(np.abs(known - np.median(known)))) if len(known) > 2 else 0.0


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


def _grew(then: Side, now: Side, part: str) -> float:
    """By how many seconds a part of the median rank's step grew beyond noise; 0 if it did not."""
    if part not in then.typical or part not in now.typical:
        return 0.0
    grown = now.typical[part] - then.typical[part]
    noise = max(GREW * then.typical["step_time_s"], SPREADS * then.spread[part])
    return grown if grown > noise else 0.0


def _few(then: Side, now: Side, part: str) -> tuple[int, ...]:
    """Ranks whose own part grew apart from the others': against their own past, and the others' growth."""
    common = sorted(then.ranks.keys() & now.ranks.keys())
    if len(common) < 3 or len(then.ranks) != len(now.ranks) or part not in then.typical:
        return ()
    growth = {r: now.ranks[r].get(part, np.nan) - then.ranks[r].get(part, np.nan) for r in common}
    usual = float(np.nanmedian(list(growth.values())))
    noise = max(GREW * then.typical["step_time_s"], SPREADS * then.spread[part])
    late = tuple(
        r
        for r in common
        if growth[r] - usual > noise and now.ranks[r][part] > APART * (then.ranks[r][part] + max(usual, 0.0))
    )
    return late if 2 * len(late) < len(common) else ()


def _decide(then: Side, now: Side, on_cpus: bool) -> Finding:
    """Few ranks or all first; then the part that grew most, and which suspect that part means."""
    for part, kind, site in (
        ("data_wait_s", Kind.DATA_STARVED, "dataloader"),
        ("compute_s", Kind.STRAGGLER, "compute"),
        ("rest_s", Kind.STRAGGLER, "host"),
    ):
        if ranks := _few(then, now, part):
            return _few_ranks(then, now, part, kind, site, ranks)
    grown = {part: _grew(then, now, part) for part in PARTS if part != "step_time_s"}
    part = max(grown, key=lambda p: grown[p])
    if not grown[part]:
        return _unchanged(then, now)
    return _all_ranks(then, now, part, on_cpus)


def _few_ranks(then: Side, now: Side, part: str, kind: Kind, site: str, ranks: tuple[int, ...]) -> Finding:
    worst = max(ranks, key=lambda r: now.ranks[r][part] - then.ranks[r][part])
    before, after = then.ranks[worst][part], now.ranks[worst][part]
    factor = after / now.typical[part] if now.typical[part] > 0 else None
    took = now.typical["step_time_s"]
    return Finding(
        source="signal",
        kind=kind,
        confidence=Confidence.LIKELY,
        summary=(
            f"{who(ranks)} {verb(ranks, 'spends', 'spend')} {seconds(after)} a step on {PARTS[part]}, "
            f"{seconds(before)} in the earlier run; the median rank {seconds(now.typical[part])}: "
            f"{share((after - now.typical[part]) / took)} of each step"
        ),
        culprits=ranks,
        victims=tuple(r for r in now.steps.ranks if r not in ranks),
        where=Where(site=site, factor=factor, cost=(after - now.typical[part]) / took),
        evidence=tuple(_cite(then, now, r, part) for r in ranks[:3]),
    )


def _all_ranks(then: Side, now: Side, part: str, on_cpus: bool) -> Finding:
    kind, because = _meaning(then, now, part, on_cpus)
    before, after = then.typical[part], now.typical[part]
    took, took_then = now.typical["step_time_s"], then.typical["step_time_s"]
    shown = now.steps.ranks[:3]
    return Finding(
        source="signal",
        kind=kind,
        confidence=Confidence.POSSIBLE if kind is Kind.INCONCLUSIVE else Confidence.LIKELY,
        summary=(
            f"{PARTS[part]} grew on all ranks, from {seconds(before)} to {seconds(after)} a step (steps take "
            f"{seconds(took)}, {seconds(took_then)} in the earlier run)"
            f"{because}"
        ),
        victims=now.steps.ranks,
        where=Where(site="dataloader" if kind is Kind.DATA_STARVED else None),
        evidence=tuple(_cite(then, now, r, part) for r in shown),
        ruled_out=(RuledOut(Kind.STRAGGLER, "no rank grew apart from the others"),),
    )


def _meaning(then: Side, now: Side, part: str, on_cpus: bool) -> tuple[Kind, str]:
    """Which suspect a part means. Source: the first seed's table of the parts of two traces."""
    if part == "data_wait_s":
        return Kind.DATA_STARVED, ""
    if part == "save_s":
        return Kind.CHECKPOINT_SLOW, ""
    if part == "comm_wait_s" and not on_cpus:
        return Kind.COMM_SLOW, ""
    if part == "comm_wait_s":
        return Kind.INCONCLUSIVE, ": on CPUs the network is the same cores, and a busy machine looks alike"
    if part == "compute_s":
        return Kind.INCONCLUSIVE, ": look at the clocks of all cards, and at what changed in model and shapes"
    for field, kind, times in (
        ("mem_inactive_split", Kind.MEMORY_FRAGMENTATION, 2.0),
        (OUTPUT, Kind.LOG_FLOOD, 10.0),
    ):
        before, after = (
            _middle(np.median, s.steps.matrix(field)[:, s.cells]) if s.steps.has(field) else np.nan
            for s in (then, now)
        )
        if after > times * before:
            return kind, f"; {field} is {size(after)}, {size(before)} then"
    return Kind.INCONCLUSIVE, ": neither memory nor output explains it; sample stacks: drill collect"


def _unchanged(then: Side, now: Side) -> Finding:
    before, after = then.typical["step_time_s"], now.typical["step_time_s"]
    return Finding(
        source="signal",
        kind=Kind.HEALTHY,
        confidence=Confidence.LIKELY,
        summary=f"no part of a step grew beyond noise: steps take {seconds(after)}, {seconds(before)} then",
    )


def _cite(then: Side, now: Side, rank: int, part: str) -> Citation:
    before = then.ranks.get(rank, {}).get(part, np.nan)
    field = {"rest_s": "step_time_s", "save_s": "ckpt_duration_s"}.get(part, part)
    after = now.ranks[rank].get(part, np.nan)
    said = f"rank {rank}: {PARTS[part]} {seconds(after)} a step, {seconds(before)} then"
    return cite(now.steps, rank, f"{said} ({field})")
