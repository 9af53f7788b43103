"""Repeated samples of a job that runs, as shares: who waits for others, who is waited for, and in what."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.diagnose.stacks.activity import COMMUNICATION, UNDECIDED, Activity, activity
from harness.diagnose.stacks.samples import Frame, ProcessStacks, RankStacks, read_sampling

MIN_SAMPLINGS = 3
"""Fewer are those of a hang: one look, and a second one for movement."""

TOP = 5


@dataclass(frozen=True)
class RankShares:
    """What one rank was caught doing. `samples`: those that could be read.

    `doing`: activity -> share of the samples, 0 to 1, the largest first. `top`: the user's functions in which
    it was at its most frequent work, ``function file:line`` with the most frequent line, and their share of
    the samples. `runnable`: the share of the samples in which the main thread ran, or wanted to and had no
    core. `waited_in`: the call in which it waited most. `moments`: what it did in those samplings that
    are independent of one another, None where that was not readable; the moments of all ranks are the same.
    `file`: the folder.
    """

    rank: int
    samples: int
    doing: Mapping[str, float]
    top: tuple[tuple[str, float], ...]
    file: str
    waited_in: str | None = None
    moments: tuple[str | None, ...] = ()
    runnable: float = 0.0

    @property
    def work(self) -> str | None:
        """The work at which it was caught most; None if it was never at any."""
        return next((what for what in self.doing if is_work(what)), None)


def is_work(doing: str) -> bool:
    """Whether an activity is work of the rank's own, not a wait for others and not undecided."""
    return doing != COMMUNICATION and doing not in UNDECIDED


def read_shares(folder: Path, root: Path) -> dict[int, RankShares]:
    """The shares of every rank from all samplings under `folder`, ``stacks/attempt_<n>`` of a bundle.

    Empty where there are fewer than MIN_SAMPLINGS. Files that cannot be read count as not sampled.
    """
    numbers = sorted(int(p.name) for p in folder.iterdir() if p.name.isdecimal()) if folder.is_dir() else []
    if len(numbers) < MIN_SAMPLINGS:
        return {}
    name = str(folder.relative_to(root))
    return shares_of([read_sampling(folder / str(number), root)[0] for number in numbers], name)


def shares_of(samplings: Sequence[Mapping[int, RankStacks]], file: str) -> dict[int, RankShares]:
    """The shares of every rank, from samplings in the order in which they were taken."""
    independent = _independent(samplings)
    found: dict[int, RankShares] = {}
    for rank in sorted({rank for sampling in samplings for rank in sampling}):
        processes = [own for s in samplings if (stacks := s.get(rank)) and (own := stacks.own)]
        runnable = sum(own.state == "running" for own in processes) / max(1, len(processes))
        seen = [_activity(sampling.get(rank)) for sampling in samplings]
        caught = [what for what in seen if what is not None]
        if caught:
            moments = tuple(a.doing if (a := seen[i]) else None for i in independent)
            found[rank] = _shares(rank, caught, file, moments, runnable)
    return found


def _shares(
    rank: int, caught: Sequence[Activity], file: str, moments: tuple[str | None, ...], runnable: float
) -> RankShares:
    count = len(caught)
    doing = Counter(what.doing for what in caught)
    waits = Counter(what.call for what in caught if what.doing == COMMUNICATION and what.call)
    work = next((what for what, _ in doing.most_common() if is_work(what)), None)
    frames = [what.frame for what in caught if what.frame and what.doing == work]
    return RankShares(
        rank=rank,
        samples=count,
        doing={what: number / count for what, number in doing.most_common()},
        top=tuple((place, number / count) for place, number in _functions(frames)),
        file=file,
        waited_in=waits.most_common(1)[0][0] if waits else None,
        moments=moments,
        runnable=runnable,
    )


def _functions(frames: Sequence[Frame]) -> list[tuple[str, int]]:
    """Functions by how often they were sampled, each with the line in which it was sampled most."""
    functions = Counter((frame.name, frame.filename) for frame in frames)
    lines = Counter(frames)
    return [
        (str(next(f for f, _ in lines.most_common() if (f.name, f.filename) == function)), number)
        for function, number in functions.most_common(TOP)
    ]


def _activity(sampled: RankStacks | None) -> Activity | None:
    own = sampled.own if sampled else None
    return activity(own) if own else None


def _independent(samplings: Sequence[Mapping[int, RankStacks]]) -> list[int]:
    """The samplings between which nobody slept through: two looks at one long step, or save, count once."""
    return [
        i
        for i, sampling in enumerate(samplings)
        if i == 0 or not any(_slept_through(samplings[i - 1].get(rank), sampling[rank]) for rank in sampling)
    ]


def _slept_through(before: RankStacks | None, after: RankStacks) -> bool:
    """Whether a main thread sleeps in one place since before the first of two samplings.

    A rank that sleeps, and has not gone to sleep in between, has slept all along; in a collective of all
    ranks that means that the step is the same one. Where switches are not recorded an equal stack means it.
    """
    first, second = before.own if before else None, after.own
    if first is None or second is None or not second.main or second.state != "sleeping":
        return False
    if _place(first) != _place(second):
        return False
    return first.switches is None or second.switches is None or first.switches == second.switches


def _place(process: ProcessStacks) -> tuple[tuple[str, str, int], ...]:
    return tuple((frame.name, frame.filename, frame.line) for frame in process.main)
