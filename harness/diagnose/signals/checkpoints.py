"""Saves that fail, and saves that take longer than this run's own saves took."""

from collections.abc import Mapping

import numpy as np

from harness.diagnose.signals.history import Save
from harness.diagnose.signals.steps import Steps, change_point
from harness.diagnose.signals.wording import seconds, verb, who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

LEAST_SAVES = 6
NOTICEABLE_S = 0.1
"""A save that is later by less than this costs nobody anything."""

APART = 1.5
"""The quickest of the last saves takes so much longer than the slowest of the first: no storage's mood."""


def failed_save(steps: Steps) -> Finding | None:
    """Saves that failed, and on which ranks if not on all of them."""
    failing = {h.rank: h for h in steps.histories if h.failed_saves}
    if not failing:
        return None
    counting = [h.rank for h in steps.histories if h.saves or h.failed_saves]
    ranks = tuple(sorted(failing)) if len(failing) < len(counting) else ()
    step = min(h.failed_saves[0].step for h in failing.values())
    times = max(len(h.failed_saves) for h in failing.values())
    often = "once" if times == 1 else f"{times} times"
    part = f"{who(ranks)} {verb(ranks, 'fails', 'fail')} to write {verb(ranks, 'its', 'their')} part"
    return Finding(
        source="signal",
        kind=Kind.CHECKPOINT_FAILED,
        confidence=Confidence.CERTAIN,
        summary=f"{part if ranks else 'no rank can save'}: failed {often}, first after step {step}",
        culprits=ranks,
        victims=tuple(r for r in steps.ranks if r not in ranks),
        where=Where(step=step, site="checkpoint"),
        evidence=tuple(
            Citation(
                "signal",
                f"rank {h.rank}: {int(h.failed_saves[-1].value)} saves failed",
                h.file,
                h.failed_saves[0].line,
                rank=h.rank,
            )
            for h in list(failing.values())[:3]
        ),
        chain=("a save fails", f"-> a crash now goes back to the checkpoint before step {step}"),
    )


def slow_save(steps: Steps) -> Finding | None:
    """Saves that take more than twice this run's own first saves; who, where ranks time their own parts."""
    saves = {h.rank: h.saves for h in steps.histories if len(h.saves) >= LEAST_SAVES}
    if 2 * len(saves) <= len(steps.histories):
        return None
    early, now = _typical(saves, "duration_s")
    if not now > steps.limits.slow_save * early or now - early < NOTICEABLE_S or not _apart(saves):
        return None
    beside = _beside_training(saves)
    ranks = _writers(saves, steps.limits.slow_save)
    some = ranks if 0 < 2 * len(ranks) < len(saves) else ()
    step = _since(saves, steps.limits.slow_save * early)
    shown = (some or tuple(sorted(saves)))[:3]
    whose = (
        f", and {who(some)} {verb(some, 'is', 'are')} late with {verb(some, 'its', 'their')} part"
        if some
        else ""
    )
    return Finding(
        source="signal",
        kind=Kind.CHECKPOINT_SLOW,
        confidence=Confidence.POSSIBLE if beside else Confidence.CERTAIN if some else Confidence.LIKELY,
        summary=f"saves take {seconds(now)} where this run's first took {seconds(early)}{whose}",
        culprits=some,
        victims=tuple(r for r in steps.ranks if r not in some),
        where=Where(step=step, site="checkpoint"),
        evidence=tuple(_cite(steps, rank, saves[rank]) for rank in shown),
        chain=(
            "storage takes longer to have a checkpoint",
            "-> saves run beside training, and the next may wait" if beside else "-> all ranks wait for it",
        ),
    )


def _apart(saves: Mapping[int, tuple[Save, ...]]) -> bool:
    """Whether the last saves are all longer than all first ones, on the median rank."""
    sides = [_thirds(s) for s in saves.values()]
    ratios = [min(s.duration_s for s in last) / max(s.duration_s for s in first) for first, last in sides]
    return float(np.median(ratios)) > APART


def _beside_training(saves: Mapping[int, tuple[Save, ...]]) -> bool:
    """Whether the last saves are longer than the steps that they were recorded in: nobody waits for those."""
    last = [s for own in saves.values() for s in _thirds(own)[1]]
    return sum(save.step_s < save.duration_s / 2 for save in last) > len(last) / 2


def _thirds(saves: tuple[Save, ...]) -> tuple[tuple[Save, ...], tuple[Save, ...]]:
    """The first and the last third of a rank's saves, at least two each."""
    count = max(2, len(saves) // 3)
    return saves[:count], saves[-count:]


def _typical(saves: Mapping[int, tuple[Save, ...]], what: str) -> tuple[float, float]:
    """Median over ranks of their median first and last saves, seconds."""
    sides = [[_median(part, what) for part in _thirds(s)] for s in saves.values()]
    early, now = (float(np.median(side)) for side in zip(*sides, strict=True))
    return early, now


def _median(saves: tuple[Save, ...], what: str) -> float:
    return float(np.median([getattr(save, what) for save in saves]))


def _writers(saves: Mapping[int, tuple[Save, ...]], factor: float) -> tuple[int, ...]:
    """Ranks whose own part grew, against their own first saves and against their peers' last ones."""
    own = {r: tuple(_median(part, "write_s") for part in _thirds(s)) for r, s in saves.items()}
    if any(np.isnan(side) for sides in own.values() for side in sides):
        return ()
    peers = float(np.median([now for _, now in own.values()]))
    late = (
        r
        for r, (early, now) in own.items()
        if now > factor * max(early, peers) and now - early > NOTICEABLE_S
    )
    return tuple(sorted(late))


def _since(saves: Mapping[int, tuple[Save, ...]], limit: float) -> int:
    """The step of the first save from which on they are slow, some noise aside."""
    steps = next(iter(saves.values()))
    return steps[change_point(np.array([save.duration_s for save in steps]), limit)].step


def _cite(steps: Steps, rank: int, saves: tuple[Save, ...]) -> Citation:
    early, now = _thirds(saves)
    said = f"saves {seconds(_median(now, 'duration_s'))}, first {seconds(_median(early, 'duration_s'))}"
    own = _median(now, "write_s")
    if not np.isnan(own):
        said += f"; own part {seconds(own)}, first {seconds(_median(early, 'write_s'))}"
    return Citation("signal", f"rank {rank}: {said}", steps.history(rank).file, now[0].line, rank=rank)
