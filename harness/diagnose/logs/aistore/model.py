"""What is read from daemon logs, and what is said about them."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.model.diagnosis import Citation, Recommendation

TRACKED = (
    "get.n",
    "getbatch.n",
    "getbatch.obj.n",
    "err.get.n",
    "err.getbatch.n",
    "err.http.write.n",
    "err.put.n",
    "err.head.n",
    "err.lst.n",
)
"""The counters that are followed; `Sample.values` stand in this order."""


@dataclass(frozen=True)
class Sample:
    """One stats line: `at` in unix seconds, `values` as in TRACKED, all counted since the daemon began."""

    at: float
    line: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """One line that was noticed; `at` in unix seconds."""

    at: float
    line: int
    text: str


@dataclass(frozen=True)
class Bucket:
    """Equal lines of about one minute: how many, the first and the last of them."""

    count: int
    first: Seen
    last: Seen


@dataclass(frozen=True)
class DaemonFile:
    """One log file of one daemon.

    `role`: proxy, target or unknown. `level`: INFO or ERROR; an ERROR file repeats the W and E lines of its
    INFO file. Times are unix seconds if `dated`; with `year_known` False they stand in YEAR_UNKNOWN, with
    `dated` False on the first of January 1970. `header`: ``started``, ``rotated``, or None if no line says
    why the file begins. `zone` is the marker's word, `zone_offset_s` what was taken off to get UTC, None if
    no marker states a zone that has a number. `fell`: stats lines below the one before.
    """

    name: str
    role: str
    id: str
    level: str
    began: float
    last: float
    lines: int
    dated: bool
    year_known: bool
    header: str | None = None
    zone: str | None = None
    zone_offset_s: float | None = None
    samples: tuple[Sample, ...] = ()
    fell: tuple[Sample, ...] = ()
    patterns: Mapping[str, tuple[Bucket, ...]] | None = None


YEAR_UNKNOWN = 2000
"""A leap year, so that every day of a name exists in it."""


@dataclass(frozen=True)
class Daemons:
    """All files that could be read, in the order given, and a line of complaint for each that could not."""

    files: tuple[DaemonFile, ...] = ()
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Growth:
    """How far one counter grew in the window, against the time before.

    `before_per_s` is None where less than ten minutes stand before the window. `file`, `line`, `at` are of
    the stats line that ends the largest growth. `risen`: whether it grew much faster than before; None if
    nothing tells.
    """

    counter: str
    grew: int
    per_s: float
    before_per_s: float | None
    risen: bool | None
    file: str
    line: int
    at: float


@dataclass(frozen=True)
class PatternCount:
    """Lines of one pattern in the window (counted by the minute) and the first of them.

    `usual`: the lines came as often before the window, so they tell nothing about it.
    """

    name: str
    meaning: str
    count: int
    file: str
    first: Seen
    usual: bool


@dataclass(frozen=True)
class DaemonRow:
    """One daemon in the window.

    `file` is the one that covers it (or its part), None if none does. `covers`: whether its logs reach from
    before the window to its end. `stats`: pairs of stats lines that tell of it. `restarts`: lines or files
    that show a restart inside the window. Error rates are failed GETs for each good one, None where nothing
    was read. `erring`: why it counts as failing, "" if it does not.
    """

    role: str
    id: str
    files: tuple[str, ...]
    file: str | None
    covers: bool
    stats: int = 0
    restarts: tuple[Citation, ...] = ()
    deltas: tuple[Growth, ...] = ()
    patterns: tuple[PatternCount, ...] = ()
    error_rate: float | None = None
    error_rate_before: float | None = None
    erring: str = ""

    @property
    def restarted(self) -> bool:
        """Whether it restarted inside the window."""
        return bool(self.restarts)


@dataclass(frozen=True)
class Link:
    """One link of the chain that was seen; `at` is unix seconds on the daemons' clock, None if undated."""

    text: str
    file: str
    line: int
    at: float | None = None


@dataclass(frozen=True)
class Window:
    """The window on the daemons' clock. `shift_s` was added to the workers' times to get there.

    `compared`: whether an anchor shows that the two clocks belong together; `how` says by what.
    """

    start: float | None
    end: float | None
    shift_s: float
    compared: bool
    how: str


@dataclass(frozen=True)
class StorageReport:
    """What the storage did. `side`: target, proxy, unknown or calm."""

    window: Window
    side: str
    summary: str
    rows: tuple[DaemonRow, ...] = ()
    erring: tuple[str, ...] = ()
    chain: tuple[Link, ...] = ()
    citations: tuple[Citation, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()
    complaints: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
