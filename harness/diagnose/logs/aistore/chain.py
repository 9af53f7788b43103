"""The way a batch GET fails, link by link, as far as each was seen."""

from collections.abc import Iterator, Sequence

from harness.diagnose.logs.aistore.model import DaemonRow, Link, Seen
from harness.diagnose.logs.aistore.patterns import PATTERN, PATTERNS
from harness.diagnose.logs.aistore.rows import Span, growth_says, in_span
from harness.diagnose.logs.aistore.series import Series

ORDER_SLACK_S = 60.0
"""A cause may be logged a little later than its effect, not more."""

_EMPTY = ("recv'd len=0", "recvd len=0", "recv'd len0", "recvd len0")
_SHORT = ("fewer objects", "exhausted prematurely")


def chain(daemons: Sequence[Series], rows: Sequence[DaemonRow], span: Span, dated: bool) -> tuple[Link, ...]:
    """Pressure, broken streams, lost objects, aborted batches, failed batch GETs, as far as seen.

    Lines that came as often before the window are none. Pressure counts only if it was there when the first
    stream broke or the first object was lost; what follows is looked for from there on.
    """
    usual = {(r.id, pattern.name) for r in rows for pattern in r.patterns if pattern.usual}
    failures = [_first(daemons, usual, stage, span.start, span) for stage in (2, 3)]
    pivot = min((failure[0].at for failure in failures if failure), default=None)
    links: list[Link] = []
    after = span.start
    for stage in (1, 2, 3, 4):
        found = _first(daemons, usual, stage, after, span)
        if found is None:
            continue
        seen, file, daemon, name = found
        if stage == 1 and pivot is not None and seen.at > pivot + ORDER_SLACK_S:
            continue
        if stage > 1:
            after = max(after, seen.at - ORDER_SLACK_S)
        links.append(Link(_text(daemon, name, seen), file, seen.line, seen.at if dated else None))
    links.extend(_failed_batches(rows, after, dated))
    return tuple(links)


def loader_link(text: str, file: str, line: int, at: float | None = None) -> Link | None:
    """The chain's last link, from a worker's log, if the line speaks of a batch that came back short."""
    if "AISBatchLoaderError" not in text and not any(words in text for words in _SHORT):
        return None
    return Link(
        "the loader got fewer objects than it asked for and raised AISBatchLoaderError", file, line, at
    )


def _failed_batches(rows: Sequence[DaemonRow], after: float, dated: bool) -> Iterator[Link]:
    grown = [
        (growth, row.id)
        for row in rows
        for growth in row.deltas
        if growth.counter == "err.getbatch.n" and growth.risen and growth.at >= after
    ]
    if grown:
        growth, daemon = min(grown, key=lambda pair: pair[0].at)
        at = growth.at if dated else None
        yield Link(
            f"batch GETs fail for the clients: {growth_says(daemon, growth)}", growth.file, growth.line, at
        )


def _first(
    daemons: Sequence[Series], usual: set[tuple[str, str]], stage: int, after: float, span: Span
) -> tuple[Seen, str, str, str] | None:
    """The first line of a stage from `after` on: line, file, daemon, pattern."""
    names = [pattern.name for pattern in PATTERNS if pattern.stage == stage]
    found = [
        (seen, file.name, daemon.id, name)
        for daemon in daemons
        for file in daemon.files
        for name in names
        if (daemon.id, name) not in usual
        for seen, _ in in_span((file.patterns or {}).get(name, ()), max(after, span.start), span.end)
    ]
    return min(found, key=lambda item: (item[0].at, item[1], item[0].line), default=None)


def _text(daemon: str, name: str, seen: Seen) -> str:
    empty = "; nothing was received (length 0)" if any(word in seen.text for word in _EMPTY) else ""
    return f"{daemon}: {PATTERN[name].meaning}{empty}"
