"""`drill/diagnosis/1`: what a diagnosis says, key by key as the contract lists them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.model.kinds import Category, Confidence, Kind

SCHEMA = "drill/diagnosis/1"


@dataclass(frozen=True)
class Citation:
    """One claim and the line or record that it rests on.

    `source` is one of flight_recorder, log, stack, signal, launcher, kernel, gpu; `file` is
    relative to the path that was diagnosed; `record` is the Flight Recorder's record id.
    """

    source: str
    says: str
    file: str | None = None
    line: int | None = None
    record: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class CallSignature:
    """What peers compare about one operation. Sizes are element counts a dimension, one list a tensor."""

    op: str
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    site: str | None = None
    seq: int | None = None


@dataclass(frozen=True)
class Location:
    """Where a culprit runs, as far as known."""

    host: str | None = None
    pid: int | None = None
    device: str | None = None
    local_rank: int | None = None


@dataclass(frozen=True)
class Where:
    """The place of the break. `seq`: where the streams parted; `stuck_seq`: where everybody stands.

    `signal` is the one that ended a rank. `factor`: how many times slower than its peers a straggler is;
    `cost`: the share of everybody's step time that is lost to it. `recovered`: seconds from the failure until
    a restarted job had completed its first step; None if it did not recover.
    """

    group: str | None = None
    group_ranks: tuple[int, ...] = ()
    group_rank: int | None = None
    hosts: tuple[str, ...] = ()
    seq: int | None = None
    stuck_seq: int | None = None
    op: str | None = None
    step: int | None = None
    site: str | None = None
    how: str | None = None
    signal: str | None = None
    recovered: float | None = None
    factor: float | None = None
    cost: float | None = None
    expected: CallSignature | None = None
    found: Mapping[int, CallSignature] = field(default_factory=dict)
    frames: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class RankState:
    """What one set of like ranks looked like in one group when the evidence was taken.

    `timed_out`: the number in which their own watchdogs gave up; `last_step`: the last one that they report,
    which took `step_time_s`.
    """

    ranks: str
    group: str | None = None
    enqueued: int | None = None
    completed: int | None = None
    alive: bool | None = None
    exit: str | None = None
    watchdog: str = "none"
    timed_out: int | None = None
    last_step: int | None = None
    step_time_s: float | None = None


@dataclass(frozen=True)
class RankCensus:
    """How many ranks there should be, and which of them left evidence."""

    expected: int | None = None
    with_evidence: str = ""
    missing: str = ""
    states: tuple[RankState, ...] = ()


@dataclass(frozen=True)
class Job:
    """What the evidence says about the job itself.

    `state`: hung, crashed, restarting, stopped, finished, running. `stated`: the lines that framework,
    size and start rest on.
    """

    framework: str | None = None
    nodes: int | None = None
    started: float | None = None
    resumed_from: str | None = None
    last_step: int | None = None
    state: str | None = None
    stated: tuple[Citation, ...] = ()


@dataclass(frozen=True)
class TierCount:
    """How often one class of log lines was said, and by whom.

    `tier`: 1 kills processes, 2 breaks the training loop, 3 is data and storage. `symptom`: only follows from
    something else. `first`: ``file:line``.
    """

    tier: int
    what: str
    count: int
    ranks: str
    files: int
    first: str
    symptom: bool = False


@dataclass(frozen=True)
class RuledOut:
    """An explanation that was considered and the evidence against it."""

    kind: Kind
    because: str


@dataclass(frozen=True)
class TimelineEntry:
    """One moment, with its source. `at` is unix seconds."""

    at: float
    what: str
    rank: int | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Recommendation:
    """Something to change. `side` is one of storage, client, training, hardware, scheduler."""

    side: str
    do: str


@dataclass(frozen=True)
class Revision:
    """A conclusion that changed on the way, said openly."""

    was: str
    now: str
    because: str


@dataclass(frozen=True)
class Diagnosis:
    """One answer from all the evidence. Culprits are convicted; suspects cannot be told apart.

    `tiers`: how often each class of log lines was said; `clocks`: how files' clocks differ, and how that was
    found. `runbook`: file and section that say what to do.
    """

    kind: Kind
    category: Category
    confidence: Confidence
    summary: str
    culprits: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    at: Mapping[int, Location] = field(default_factory=dict)
    victims: tuple[int, ...] = ()
    where: Where = field(default_factory=Where)
    ranks: RankCensus = field(default_factory=RankCensus)
    job: Job = field(default_factory=Job)
    evidence: tuple[Citation, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    chain: tuple[str, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    next_steps: tuple[str, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()
    key_files: tuple[str, ...] = ()
    revised: tuple[Revision, ...] = ()
    missing_evidence: tuple[str, ...] = ()
    tiers: tuple[TierCount, ...] = ()
    clocks: tuple[str, ...] = ()
    runbook: str | None = None
    schema: str = SCHEMA
