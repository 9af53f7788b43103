"""Which of several failures came first, told only across clocks that can be compared (rule 6)."""

from collections.abc import Sequence

from harness.diagnose.logs.effects import effects
from harness.diagnose.logs.failures import Failure
from harness.diagnose.logs.story import Story
from harness.diagnose.logs.wording import cite, say_failure, what_it_says
from harness.model.diagnosis import Citation, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

MAX_CITED = 4


def first_failure(failures: Sequence[Failure], story: Story) -> Finding | None:
    """The failure that came before all others, or those among which nothing decides."""
    if not failures:
        return None
    candidates = [f for f in failures if not any(_precedes(o, f, story) for o in failures if o is not f)]
    if not candidates:
        candidates = list(failures)
    told = [f for f in candidates if not f.blind]
    if told and len(told) < len(candidates):
        candidates = told
    if len(candidates) > 1 and _crowd(candidates, story):
        return _alike(candidates, story)
    if len(candidates) > 1:
        candidates = _by_standing(candidates)
    if len(candidates) > 1:
        return _tied(candidates, story)
    return _convicted(candidates[0], failures, story)


def _precedes(one: Failure, other: Failure, story: Story) -> bool:
    return story.before(one.first, other.first) is True


def _by_standing(candidates: list[Failure]) -> list[Failure]:
    """Hardware and whole nodes explain whatever else their ranks or peers say; an open root cause as well."""
    for kind in (Kind.HARDWARE_FAULT, Kind.NODE_LOST):
        strong = [f for f in candidates if f.kind is kind]
        if len(strong) == 1:
            return strong
    roots = [f for f in candidates if any(e.words.get("root") for e in f.voices)]
    others = [f for f in candidates if f not in roots]
    if len(roots) == 1 and all(_listed_later(f, roots[0]) for f in others):
        return roots
    return candidates


def _listed_later(other: Failure, root: Failure) -> bool:
    """Whether one agent's block has both, with different times."""
    mine = next((e for e in root.voices if e.what == "block_exit"), None)
    its = next((e for e in other.voices if e.what == "block_exit"), None)
    if mine is None or its is None or mine.file != its.file or mine.host != its.host:
        return False
    return mine.words.get("time", "") < its.words.get("time", "")


def _crowd(candidates: Sequence[Failure], story: Story) -> bool:
    """Whether more than half of all ranks failed alike: none of them is the cause."""
    kinds = {f.kind for f in candidates}
    return len(kinds) == 1 and len(candidates) > 2 and 2 * len(candidates) > story.census.size


def _alike(candidates: Sequence[Failure], story: Story) -> Finding:
    ranks = sorted(f.rank for f in candidates if f.rank is not None)
    failure = candidates[0]
    return Finding(
        source="log",
        kind=failure.kind,
        confidence=Confidence.LIKELY,
        summary=f"ranks {format_ranks(ranks)} all failed alike: {what_it_says(failure)}; nothing "
        f"says that one of them is the cause",
        victims=story.everybody,
        where=Where(how=failure.how, site=failure.site, signal=failure.signal),
        evidence=tuple(c for f in candidates[:3] for c in _cited(f)[:1]),
        chain=(f"ranks {format_ranks(ranks)}: {what_it_says(failure)}",),
    )


def _tied(candidates: Sequence[Failure], story: Story) -> Finding:
    best = min(candidates, key=lambda f: f.order)
    suspects = tuple(sorted({r for f in candidates for r in f.accused}))
    said = "; ".join(say_failure(f) for f in candidates[:3])
    more = f" and {len(candidates) - 3} more" if len(candidates) > 3 else ""
    return Finding(
        source="log",
        kind=best.kind,
        confidence=Confidence.POSSIBLE,
        summary=f"{said}{more}: which came first, the logs do not say",
        suspects=suspects,
        victims=story.others(suspects),
        where=Where(how=best.how, site=best.site, signal=best.signal, hosts=_hosts(candidates)),
        evidence=tuple(c for f in candidates[:4] for c in _cited(f)[:2]),
        chain=(*(say_failure(f) for f in candidates[:3]), *effects(story)),
    )


def _hosts(failures: Sequence[Failure]) -> tuple[str, ...]:
    return tuple(sorted({h for f in failures for h in f.hosts}))


def _convicted(failure: Failure, failures: Sequence[Failure], story: Story) -> Finding:
    ranks = failure.accused
    # An abort or an exit code without a word may be what somebody else's failure made of this rank.
    wordless = failure.blind and failure.signal in (None, "SIGABRT")
    sure = failure.sure and not wordless
    certain = sure and not failure.blind and len(failures) == 1
    later = [f for f in failures if f is not failure]
    ruled_out = tuple(
        RuledOut(f.kind, f"{say_failure(f)} ({f.event.place}) came later or is explained by it")
        for f in later[:3]
    )
    return Finding(
        source="log",
        kind=failure.kind,
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=say_failure(failure),
        culprits=ranks if sure else (),
        suspects=() if sure else ranks,
        victims=story.others(ranks),
        where=Where(how=failure.how, site=failure.site, signal=failure.signal, hosts=failure.hosts),
        evidence=_cited(failure)[:MAX_CITED],
        chain=(say_failure(failure), *effects(story)),
        ruled_out=ruled_out,
    )


def _cited(failure: Failure) -> tuple[Citation, ...]:
    first = (failure.event, *(e for e in failure.voices if e is not failure.event))
    return tuple(cite(event, failure.rank) for event in first)
