"""Tables over all ranks: the state of each, and how often each class of lines was said."""

from collections import defaultdict
from collections.abc import Mapping

from harness.diagnose.logs.event import Event
from harness.diagnose.logs.failures import Found
from harness.diagnose.logs.story import Story
from harness.diagnose.logs.symptoms import exit_code
from harness.model.diagnosis import RankState, TierCount
from harness.model.ranks import format_ranks


def rank_states(story: Story) -> tuple[RankState, ...]:
    """Like ranks together, the fewest first: they are the outliers."""
    waits = story.waits
    exits = _exits(story)
    steps: dict[int, tuple[int, float | None]] = {}
    for event in story.of("step"):
        if event.rank is not None:
            took = event.numbers["step_ms"] / 1e3 if "step_ms" in event.numbers else None
            steps[event.rank] = max(
                steps.get(event.rank, (-1, None)), (event.numbers["step"], took), key=_step_of
            )
    alike: dict[tuple[object, ...], list[int]] = {}
    # Of most frameworks one rank prints the steps of all: that it does is no difference.
    few = 2 * len(steps) <= story.census.size
    newest = max(steps.values(), key=_step_of, default=(None, None))
    spoken = {*story.census.heard, *exits, *(r for r, _ in waits.waits), *(r for r, _ in waits.standings)}
    for rank in sorted(spoken):
        groups = sorted({k for r, k in (*waits.waits, *waits.standings) if r == rank})
        keys: list[str | None] = [*groups] or [None]
        for key in keys:
            wait = waits.waits.get((rank, key)) if key is not None else None
            standing = waits.standings.get((rank, key)) if key is not None else None
            group = (wait.group if wait else None) or (standing.group if standing else None)
            watchdog = "own" if rank in waits.waiting else "observed" if rank in waits.observers else "none"
            row = (
                group.label if group else None,
                standing.enqueued if standing else None,
                standing.completed if standing else None,
                False if rank in exits else None,
                exits.get(rank),
                watchdog,
                wait.seq if wait else None,
                *(newest if few else steps.get(rank, (None, None))),
            )
            alike.setdefault(row, []).append(rank)
    rows = sorted(alike.items(), key=lambda item: (len(item[1]), item[1]))
    return tuple(_state(format_ranks(ranks), row) for row, ranks in rows)


def _state(ranks: str, row: tuple[object, ...]) -> RankState:
    group, enqueued, completed, alive, ended, watchdog, timed_out, step, took = row
    return RankState(
        ranks,
        group if isinstance(group, str) else None,
        _int(enqueued),
        _int(completed),
        alive if isinstance(alive, bool) else None,
        ended if isinstance(ended, str) else None,
        str(watchdog),
        _int(timed_out),
        _int(step),
        took if isinstance(took, float) else None,
    )


def _step_of(pair: tuple[int, float | None]) -> int:
    return pair[0]


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _exits(story: Story) -> dict[int, str]:
    """How each rank ended, as launchers say."""
    found: dict[int, str] = {}
    for event in story.of("block_exit", "exit", "task_end"):
        ranks = (
            (event.rank,) if event.rank is not None else event.named if story.census.tasks_are_ranks else ()
        )
        code, number = exit_code(event)
        for rank in ranks:
            if rank is not None:
                said = f"signal {number}" if number is not None else f"exit code {code}"
                found.setdefault(rank, said)
    return found


def tier_counts(story: Story, found: Found) -> tuple[TierCount, ...]:
    """Classes of lines by tier, all ranks; the last attempt's."""
    counts: dict[tuple[int, str], int] = defaultdict(int)
    ranks: dict[tuple[int, str], set[int]] = {}
    files: dict[tuple[int, str], set[str]] = {}
    first: dict[tuple[int, str], str] = {}
    symptoms = {(e.file, e.line, e.what) for e in found.symptoms}
    causes = {(e.file, e.line, e.what) for f in found.failures for e in f.voices}
    for event in story.events:
        if not event.tier:
            continue
        what = event.what if event.what != "retry" else _retry(event.numbers, story.later_step(event))
        key = (event.tier, what)
        if key not in first:
            first[key], files[key], ranks[key] = event.place, set(), set()
        counts[key] += 1 + event.repeats
        files[key].add(event.file)
        if event.rank is not None:
            ranks[key].add(event.rank)
    return tuple(
        TierCount(
            tier, what, count, format_ranks(ranks[tier, what]),
            len(files[tier, what]), first[tier, what],
            symptom=_is_symptom(what, symptoms, causes),
        )
        for (tier, what), count in sorted(counts.items())
    )  # fmt: skip


def _is_symptom(what: str, symptoms: set[tuple[str, int, str]], causes: set[tuple[str, int, str]]) -> bool:
    return any(w == what for _, _, w in symptoms) and not any(w == what for _, _, w in causes)


def _retry(numbers: Mapping[str, int], later: Event | None) -> str:
    """Retries by how they went: the last of them is a failure, the rest is noise if the rank went on."""
    if numbers.get("try", 0) >= numbers.get("of", 1 << 30) and later is None:
        return "retry, exhausted"
    return "retry, recovered" if later is not None else "retry"
