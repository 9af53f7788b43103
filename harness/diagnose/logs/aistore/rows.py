"""One daemon in the window: the file that covers it, what grew, which lines came, and why it counts."""

from collections.abc import Iterator
from dataclasses import dataclass

from harness.diagnose.logs.aistore.model import TRACKED, Bucket, DaemonRow, Growth, PatternCount, Seen
from harness.diagnose.logs.aistore.patterns import PATTERN, STRONG
from harness.diagnose.logs.aistore.series import Series, Step, restarts
from harness.model.diagnosis import Citation

HISTORY_S = 86400.0
MIN_HISTORY_S = 600.0
"""With less than this before the window nothing can be called unusual."""

RISEN = 3.0
"""Errors count only if they came at least so many times faster than before, by time and by request."""

MIN_GREW = 10
MIN_BATCH_ERRORS = 3
MIN_ERROR_RATE = 0.001
"""Failed GETs for each good one; below it they are the misses that any load has."""

END_SLACK_S = 600.0
"""An idle daemon is silent for some minutes; logs that end earlier than this do not cover the window."""

_GET, _BATCH, _ERR_GET = (TRACKED.index(name) for name in ("get.n", "getbatch.n", "err.get.n"))
_BY_CLIENT = "err.http.write.n"
"""It grows too when clients die, so it tells something only before the job's death."""


@dataclass(frozen=True)
class Span:
    """Where to look, on the daemons' clock, in unix seconds; `end` is not later than the job's death."""

    start: float
    end: float
    death: float | None = None


def row(daemon: Series, span: Span) -> DaemonRow:
    """What one daemon did in `span`."""
    inside = [step for step in daemon.steps if step.end > span.start and step.start < span.end]
    before = [s for s in daemon.steps if span.start - HISTORY_S < s.end <= span.start]
    patterns = tuple(_patterns(daemon, span))
    deltas = tuple(_growths(inside, before, span))
    file = _file(daemon, span)
    return DaemonRow(
        role=daemon.role,
        id=daemon.id,
        files=tuple(file.name for file in daemon.files),
        file=file,
        stats=len(inside),
        covers=file is not None
        and daemon.began <= span.start
        and daemon.last >= span.end - END_SLACK_S
        and _silence(daemon, span) is None,
        restarts=tuple(restarts(daemon, span.start, span.end)),
        deltas=deltas,
        patterns=patterns,
        error_rate=_rate(inside),
        error_rate_before=_rate(before) if _length(before) >= MIN_HISTORY_S else None,
        erring="; ".join(_reasons(deltas, patterns, span)),
    )


def row_complaints(daemon: Series, found: DaemonRow, span: Span) -> Iterator[str]:
    """Why a daemon's logs do not cover the window."""
    if daemon.began > span.start:
        yield f"{daemon.id}: its first log begins {_minutes(daemon.began - span.start)} after the window does"
    if daemon.last < span.start:
        yield f"{daemon.id}: its logs end before the window ({_minutes(span.start - daemon.last)})"
    elif daemon.last < span.end - END_SLACK_S:
        yield f"{daemon.id}: its logs end {_minutes(span.end - daemon.last)} before the window does"
    if (silent := _silence(daemon, span)) is not None:
        yield f"{daemon.id}: silent through the window until its next log begins ({silent}): down, or idle"
    if found.covers and not found.stats:
        yield f"{daemon.id}: no stats line tells of the window: it was idle, or logs none"


def in_span(buckets: tuple[Bucket, ...], start: float, end: float) -> Iterator[tuple[Seen, int]]:
    """The first line from `start` on of each bucket that reaches into the span, and the bucket's count."""
    for bucket in buckets:
        if bucket.last.at >= start and bucket.first.at <= end:
            seen = bucket.first if bucket.first.at >= start else bucket.last
            if seen.at <= end:
                yield seen, bucket.count


def _file(daemon: Series, span: Span) -> str | None:
    for file, after in zip(daemon.files, [*daemon.files[1:], None], strict=True):
        if file.began <= span.start and (after is None or after.began > span.start):
            if file.last >= span.start or after is None or after.began > span.end:
                return file.name if file.last >= span.start - END_SLACK_S else None
            return after.name
    return daemon.files[0].name if daemon.files[0].began <= span.end else None


def _silence(daemon: Series, span: Span) -> str | None:
    for file, after in zip(daemon.files[:-1], daemon.files[1:], strict=True):
        if file.last < span.start and after.began > span.end:
            return after.name
    return None


def _growths(inside: list[Step], before: list[Step], span: Span) -> Iterator[Growth]:
    history, old_served = _length(before), _served(before)
    for index, counter in enumerate(TRACKED):
        steps = inside
        if counter == _BY_CLIENT and span.death is not None:
            steps = [step for step in inside if step.end <= span.death]
        grew = sum(step.grew[index] for step in steps)
        if not grew:
            continue
        most = max(steps, key=lambda step: step.grew[index])
        length = max(_length(steps), 1.0)
        old = sum(step.grew[index] for step in before)
        yield Growth(
            counter=counter,
            grew=grew,
            per_s=grew / length,
            before_per_s=old / history if history >= MIN_HISTORY_S else None,
            risen=_risen(counter, (grew, length, _served(steps)), (old, history, old_served)),
            file=most.file,
            line=most.line,
            at=most.end,
        )


def _risen(counter: str, now: tuple[int, float, int], old: tuple[int, float, int]) -> bool | None:
    """Whether errors rose; each side is (errors, seconds, requests)."""
    (grew, length, served), (grew_old, history, served_old) = now, old
    if not counter.startswith("err."):
        return False
    if grew < (MIN_BATCH_ERRORS if counter == "err.getbatch.n" else MIN_GREW):
        return False
    if counter == "err.get.n" and grew < MIN_ERROR_RATE * served:
        return False
    if history < MIN_HISTORY_S:
        return None
    by_time = grew / length >= RISEN * grew_old / history
    # A load that grew brings more errors with it.
    by_request = not (served and served_old) or grew / served >= RISEN * grew_old / served_old
    return by_time and by_request


def _patterns(daemon: Series, span: Span) -> Iterator[PatternCount]:
    history = span.start - max(daemon.began, span.start - HISTORY_S)
    for name, pattern in PATTERN.items():
        count, old = 0, 0
        first: tuple[Seen, str] | None = None
        for file in daemon.files:
            buckets = (file.patterns or {}).get(name, ())
            for seen, number in in_span(buckets, span.start, span.end):
                count += number
                if first is None or seen.at < first[0].at:
                    first = seen, file.name
            old += sum(b.count for b in buckets if span.start - HISTORY_S < b.last.at < span.start)
        if first is not None:
            length = max(span.end - span.start, 60.0)
            usual = history >= MIN_HISTORY_S and old > 0 and count / length < RISEN * old / history
            yield PatternCount(name, pattern.meaning, count, first[1], first[0], usual)


def _reasons(deltas: tuple[Growth, ...], patterns: tuple[PatternCount, ...], span: Span) -> Iterator[str]:
    for found in patterns:
        if found.name in STRONG and not found.usual:
            yield f"{found.meaning} ({_lines(found.count)})"
    for growth in deltas:
        if growth.risen and (growth.counter != _BY_CLIENT or span.death is not None):
            yield f"{growth.counter} grew by {growth.grew}"


def growth_says(daemon_id: str, growth: Growth) -> str:
    """A growth in words."""
    if growth.before_per_s is None:
        before = "nothing before to compare"
    else:
        before = f"{growth.before_per_s * 3600:.4g} an hour before"
    return (
        f"{daemon_id}: {growth.counter} grew by {growth.grew} ({growth.per_s * 3600:.4g} an hour; {before})"
    )


def row_citations(found: DaemonRow) -> Iterator[Citation]:
    """What a row rests on."""
    yield from found.restarts
    for pattern in found.patterns:
        often = ", as often as before" if pattern.usual else ""
        says = f"{found.id}: {pattern.meaning} ({_lines(pattern.count)} in the window{often})"
        yield Citation("log", says, pattern.file, pattern.first.line)
    for growth in found.deltas:
        if growth.risen:
            yield Citation("log", growth_says(found.id, growth), growth.file, growth.line)


def _length(steps: list[Step]) -> float:
    return sum(step.end - step.start for step in steps)


def _served(steps: list[Step]) -> int:
    return sum(step.grew[_GET] + step.grew[_BATCH] for step in steps)


def _rate(steps: list[Step]) -> float | None:
    good = sum(step.grew[_GET] for step in steps)
    return sum(step.grew[_ERR_GET] for step in steps) / good if good else None


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
