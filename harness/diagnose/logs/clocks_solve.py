"""Bounds of clocks against a reference, from events that several files saw; contradictions widen them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.diagnose.logs.clocks_file import Clock

Interval = tuple[float, float]

_MAX_PASSES = 12
_MAX_CHECKED = 16
"""Files that each file is checked against for contradiction in detail; more only cost time."""

_EPS = 1e-4
"""Unix seconds as floats, added and taken away a few times, are no more exact than this."""


@dataclass(frozen=True)
class Sight:
    """One file's word on one event: its time of it, give or take `width`, and the line (0 if none)."""

    at: float
    width: float
    line: int
    what: str


Sights = Mapping[str, Mapping[str, Sight]]
"""By event, by file; or by file, by event."""


@dataclass
class Solved:
    """Bounds on how far each file runs ahead of `reference`; `via`: the event and the file it was got from.

    `slack`: by how much a file's own times are in doubt. `doubted`: how many contradict others. No bounds
    at all where nothing fits together.
    """

    reference: str
    bounds: dict[str, Interval]
    via: dict[str, tuple[str, str]]
    slack: dict[str, float]
    doubted: int


def solve_group(
    group: Sequence[str],
    clocks: Mapping[str, Clock],
    by_file: Sights,
    seen: Sights,
    slack: Mapping[str, float],
) -> Solved:
    """Bounds for files that events connect, from the reference that makes the fewest of them contradict."""
    best: Solved | None = None
    for reference in _references(group, by_file, clocks, slack):
        solved = _solve(group, reference, by_file, seen, slack)
        if best is None or solved.doubted < best.doubted:
            best = solved
        if not best.doubted:
            break
    assert best is not None
    return best


def direct(a: Mapping[str, Sight], b: Mapping[str, Sight], slack: float) -> Interval | None:
    """How far `b` may run ahead of `a` by the events that both saw; all that they say where they disagree."""
    words = _words(a, b, slack)
    if not words:
        return None
    return meet(*words) or (min(low for low, _ in words), max(high for _, high in words))


def meet(*intervals: Interval) -> Interval | None:
    """What all intervals share; None if nothing."""
    low, high = max(i[0] for i in intervals), min(i[1] for i in intervals)
    if low > high + _EPS:
        return None
    return (min(low, high), max(low, high))


def _references(
    group: Sequence[str],
    by_file: Sights,
    clocks: Mapping[str, Clock],
    slack: Mapping[str, float],
) -> list[str]:
    """The three likeliest: steady, of a known zone, with most anchors."""
    return sorted(group, key=lambda f: (slack[f] > 0, not clocks[f].zone, -len(by_file[f]), f))[:3]


def _solve(
    group: Sequence[str],
    reference: str,
    by_file: Sights,
    seen: Sights,
    slack: Mapping[str, float],
) -> Solved:
    """Bounds of all files of a group; each contradiction adds doubt to the files in it, and all is redone."""
    own = {name: slack[name] for name in group}
    for _ in range(_MAX_PASSES):
        solved, doubts = _pass(group, reference, by_file, seen, own)
        if not doubts:
            added = [own[name] - slack[name] for name in group if name != reference]
            solved.doubted = sum(doubt > 0 for doubt in added)
            # Where no more files agree with the reference than contradict it, it may be what jumped.
            if 2 * solved.doubted >= len(added) and solved.doubted:
                solved.slack[reference] += max(added)
            return solved
        for name, doubt in doubts.items():
            own[name] += doubt
    # Nothing fits together: every clock stands alone.
    return Solved(reference, {}, {}, dict.fromkeys(group, math.inf), len(group) + 1)


def _pass(
    group: Sequence[str],
    reference: str,
    by_file: Sights,
    seen: Sights,
    slack: dict[str, float],
) -> tuple[Solved, dict[str, float]]:
    """Adds one file after the other to those whose clocks are known; stops at the first contradiction."""
    solved = Solved(reference, {}, {}, dict(slack), 0)
    events: dict[str, Interval] = {}
    supports: dict[str, int] = {}
    waiting = dict.fromkeys(name for name in group if name != reference)
    ready: dict[str, int] = {}
    name, bound = reference, (0.0, 0.0)
    while True:
        solved.bounds[name] = bound
        for key, sight in by_file[name].items():
            width = sight.width + slack[name]
            told = (sight.at - bound[1] - width, sight.at - bound[0] + width)
            if key not in events:
                for other in seen[key]:
                    ready[other] = ready.get(other, 0) + 1
                events[key] = told
            else:
                events[key] = meet(events[key], told) or events[key]
        waiting.pop(name, None)
        if not waiting:
            return solved, {}
        name = max(waiting, key=lambda f: (f in ready, -slack[f], ready.get(f, 0)))
        words = {
            key: (sight.at - events[key][1] - sight.width - slack[name],
                  sight.at - events[key][0] + sight.width + slack[name])
            for key, sight in by_file[name].items() if key in events
        }  # fmt: skip
        supports[name] = len(words)
        met = meet(*words.values())
        doubt = (
            _disagreement(words.values()) if met is None else _pairwise(name, solved, by_file, seen, slack)
        )
        if met is None or doubt:
            doubts = {name: doubt}
            # A file that rests on one event may be what is wrong just as well.
            for other in {f for key in words for f in seen[key]}:
                if other in solved.bounds and other != reference and supports.get(other, 2) < 2:
                    doubts[other] = doubt
            return solved, doubts
        key = min(words, key=lambda k: words[k][1] - words[k][0])
        partners = (f for f in seen[key] if f in solved.bounds)
        solved.via[name] = (key, min(partners, key=lambda f: (f != reference, seen[key][f].width, f)))
        bound = met


def _pairwise(
    name: str,
    solved: Solved,
    by_file: Sights,
    seen: Sights,
    slack: Mapping[str, float],
) -> float:
    """The worst disagreement of a file with a single other one about their difference; 0 if none."""
    shared: defaultdict[str, int] = defaultdict(int)
    for key in by_file[name]:
        for other in seen[key]:
            if other in solved.bounds:
                shared[other] += 1
    worst = 0.0
    for other in sorted(shared, key=lambda f: (-shared[f], f))[:_MAX_CHECKED]:
        words = _words(by_file[other], by_file[name], slack[other] + slack[name])
        if len(words) > 1 and meet(*words) is None:
            worst = max(worst, _disagreement(words))
    return worst


def _words(a: Mapping[str, Sight], b: Mapping[str, Sight], slack: float) -> list[Interval]:
    found = []
    for key in a.keys() & b.keys():
        ahead, width = b[key].at - a[key].at, a[key].width + b[key].width + slack
        found.append((ahead - width, ahead + width))
    return found


def _disagreement(words: Iterable[Interval]) -> float:
    """All that contradicting bounds span: so much may each of them be wrong."""
    words = list(words)
    return max(high for _, high in words) - min(low for low, _ in words)
