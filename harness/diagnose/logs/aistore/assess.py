"""What the storage did in a window of time: the side, the chain, and what to do and to fetch next."""

import calendar
import datetime
import math
from collections.abc import Iterator, Sequence

from harness.diagnose.logs.aistore.advice import next_steps, recommendations
from harness.diagnose.logs.aistore.chain import chain
from harness.diagnose.logs.aistore.model import (
    TRACKED,
    YEAR_UNKNOWN,
    DaemonFile,
    DaemonRow,
    Daemons,
    Link,
    StorageReport,
    Window,
)
from harness.diagnose.logs.aistore.patterns import STRONG
from harness.diagnose.logs.aistore.rows import (
    MIN_ERROR_RATE,
    MIN_GREW,
    Span,
    row,
    row_citations,
    row_complaints,
)
from harness.diagnose.logs.aistore.series import Series, moved, series
from harness.diagnose.logs.aistore.zones import HOUR_S, hours_between
from harness.model.diagnosis import Recommendation

BEFORE_DEATH_S = 2400.0
"""The window if only the job's death is known: the usual timeout of half an hour, and ten minutes."""

MAX_CITATIONS = 60
_LATEST_S = 4e9
"""No window is later than 2096; a number beyond is no time."""


def assess(
    daemons: Daemons,
    window: tuple[float, float] | None,
    job_death: float | None,
    workers: Sequence[Link] = (),
) -> StorageReport:
    """Say what the storage did.

    `window` and `job_death` are unix seconds as the workers' logs read (UTC where they name no zone);
    `workers` are links that the workers' logs add at the chain's end. With `window` None the time before
    the death is looked at, without both the whole logs, and then no side is named.
    """
    complaints = list(daemons.complaints)
    files = tuple(_placed(daemons.files, _reference(window, job_death), complaints))
    found = series(files)
    if not found:
        unread = Window(None, None, 0.0, False, "no daemon log could be placed in time")
        return StorageReport(
            unread,
            "unknown",
            "no daemon log could be read: nothing is known of the storage",
            chain=tuple(workers),
            complaints=tuple(complaints),
            next_steps=next_steps((), unread, (), ()),
        )
    where, span, bounded = _window(found, window, job_death)
    complaints.extend(_zone_complaints(files))
    rows = tuple(row(daemon, span) for daemon in found)
    for daemon, one in zip(found, rows, strict=True):
        complaints.extend(row_complaints(daemon, one, span))
    dated = all(file.year_known for file in files)
    side = _side(found, rows, where, bounded)
    if side == "calm" and (daemons.complaints or len(files) < len(daemons.files)):
        side = "unknown"  # What could not be read may be what failed.
    erring = tuple(one.id for one in rows if one.erring)
    links = chain(found, rows, span, dated)
    citations = [citation for one in rows for citation in row_citations(one)]
    advice: tuple[Recommendation, ...] = recommendations(rows) if bounded else ()
    return StorageReport(
        window=where,
        side=side,
        summary=_summary(side, rows, where, bounded),
        rows=rows,
        erring=erring,
        chain=(*links, *workers),
        citations=tuple(citations[:MAX_CITATIONS]),
        recommendations=advice,
        complaints=tuple(complaints),
        next_steps=next_steps(rows, where, tuple(one.role for one in rows), erring),
    )


def _reference(window: tuple[float, float] | None, job_death: float | None) -> float | None:
    for moment in ((window or (None,))[0], job_death):
        if moment is not None and math.isfinite(moment):
            return moment
    return None


def _placed(
    files: Sequence[DaemonFile], reference: float | None, complaints: list[str]
) -> Iterator[DaemonFile]:
    """The files with the year that brings them next to the window, where no line states one."""
    known = [file.last for file in files if file.dated and file.year_known]
    moment = reference if reference is not None else max(known, default=None)
    for file in files:
        if not file.dated:
            complaints.append(f"{file.name}: neither its name nor a line says of which day it is: left out")
        elif file.year_known or moment is None:
            yield file
        else:
            shifts = list(_year_shifts(file, moment))
            yield moved(file, min(shifts, key=lambda s: abs(file.began + s - moment))) if shifts else file


def _year_shifts(file: DaemonFile, moment: float) -> Iterator[float]:
    began = datetime.datetime.fromtimestamp(file.began, datetime.timezone.utc)
    year = datetime.datetime.fromtimestamp(min(max(moment, 0.0), _LATEST_S), datetime.timezone.utc).year
    for guess in (year - 1, year, year + 1):
        if began.month == 2 and began.day == 29 and not calendar.isleap(guess):
            continue
        day = datetime.date(guess, began.month, began.day).toordinal()
        yield 86400.0 * (day - datetime.date(YEAR_UNKNOWN, began.month, began.day).toordinal())


def _window(
    found: Sequence[Series], window: tuple[float, float] | None, death: float | None
) -> tuple[Window, Span, bool]:
    """The window on the daemons' clock, where to look, and whether anything bounds it."""
    if death is not None and not math.isfinite(death):
        death = None
    if window is not None and not all(map(math.isfinite, window)):
        window = None
    if window is None and death is not None:
        window = (death - BEFORE_DEATH_S, death)
    if window is None:
        start, end = min(d.began for d in found), max(d.last for d in found)
        how = "no window was given: the whole logs were looked at, and the clocks were not compared"
        return Window(start, end, 0.0, False, how), Span(start, end), False
    hours, how = None, "the moment of the job's death is not known"
    if death is not None:
        hours, how = hours_between(found, death)
    shift = float((hours or 0) * HOUR_S)
    start, end = (moment + shift for moment in sorted(window))
    if hours is None:
        how = f"the time zones of workers and daemons were not compared: {how}"
    moved_death = None if death is None else death + shift
    stop = end if moved_death is None or moved_death <= start else min(end, moved_death)
    return Window(start, end, shift, hours is not None, how), Span(start, stop, moved_death), True


def _side(found: Sequence[Series], rows: Sequence[DaemonRow], where: Window, bounded: bool) -> str:
    proxies = [one for one in rows if one.role == "proxy"]
    targets = [one for one in rows if one.role == "target"]
    if not bounded or any(one.erring and one.role == "unknown" for one in rows):
        return "unknown"
    if any(one.erring for one in targets):
        # Lost objects and broken streams are the targets' own; bare counters may echo the proxies' trouble.
        strong = any(p.name in STRONG and not p.usual for one in targets for p in one.patterns)
        calm_proxies = bool(proxies) and all(one.covers and not one.erring for one in proxies)
        return "target" if strong or calm_proxies else "unknown"
    if any(one.erring for one in proxies):
        seen = bool(targets) and all(one.covers and not one.restarted for one in targets)
        return "proxy" if seen else "unknown"
    open_ = any(
        growth.risen is None or (growth.risen and growth.counter.startswith("err."))
        for one in rows
        for growth in one.deltas
    )
    strange = any(not pattern.usual for one in rows for pattern in one.patterns)
    covered = bool(targets) and all(one.covers and not one.restarted for one in rows)
    if not covered or open_ or strange or not all(one.stats for one in targets):
        return "unknown"
    return "calm" if where.compared or not any(map(_ever_failed, found)) else "unknown"


def _ever_failed(daemon: Series) -> bool:
    """Whether its logs show failures anywhere: without compared clocks the window may be another one."""
    if any(name in STRONG for file in daemon.files for name in file.patterns or ()):
        return True
    get, failed = TRACKED.index("get.n"), TRACKED.index("err.get.n")
    return any(step.grew[failed] >= max(MIN_GREW, MIN_ERROR_RATE * step.grew[get]) for step in daemon.steps)


def _summary(side: str, rows: Sequence[DaemonRow], where: Window, bounded: bool) -> str:
    targets = [one for one in rows if one.role == "target"]
    proxies = [one for one in rows if one.role == "proxy"]
    if not bounded:
        names = [one.id for one in rows if one.erring]
        said = f"failures are logged by {_ids(names)}" if names else "no failure is logged"
        return f"{said}; without a window nothing says whether the job met it"
    condition = "" if where.compared else ", if the clocks agree (they could not be compared)"
    if side == "target":
        failing = [one for one in targets if one.erring]
        return f"the storage's targets failed in the window{condition}: {_part(failing, targets, 'target')}"
    if side == "proxy":
        failing = [one for one in proxies if one.erring]
        return (
            f"the storage's proxies failed while its targets were calm{condition}: "
            f"{_part(failing, proxies, 'prox')}"
        )
    if side == "calm":
        return f"the storage was calm in the window ({len(rows)} daemons): nothing speaks against it"
    if failing := [one for one in rows if one.erring]:
        return (
            f"daemons failed in the window{condition}, but which layer failed is open: "
            f"{_part(failing, rows, 'daemon')}"
        )
    if restarted := [one.id for one in rows if one.restarted]:
        return f"{_ids(restarted)} restarted in the window{condition}; no more is known of the storage"
    if strange := [one.id for one in rows if any(not p.usual for p in one.patterns)]:
        return f"{_ids(strange)} under strain in the window{condition}, without failures of their own"
    return "the daemons' logs do not decide whether the storage failed in the window"


def _part(failing: Sequence[DaemonRow], of: Sequence[DaemonRow], noun: str) -> str:
    plural = {"prox": "proxies" if len(of) != 1 else "proxy"}.get(noun, noun + ("s" if len(of) != 1 else ""))
    share = "all" if len(failing) == len(of) and len(of) > 1 else f"{len(failing)} of"
    return f"{share} {len(of)} {plural} ({_ids([one.id for one in failing])}): {failing[0].erring}"


def _ids(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:4])
    return f"{shown} and {len(ids) - 4} more" if len(ids) > 4 else shown


def _zone_complaints(files: Sequence[DaemonFile]) -> Iterator[str]:
    unknown = [file for file in files if file.level == "INFO" and file.zone is None]
    if unknown:
        yield f"{len(unknown)} of {len(files)} daemon logs hold no marker that states a zone: taken as UTC"
    for zone in sorted({file.zone for file in files if file.zone and file.zone_offset_s is None}):
        yield f"the daemons' clock is in {zone}, which has no one offset: taken as UTC"
