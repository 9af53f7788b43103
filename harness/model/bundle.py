"""`drill/bundle/1`: the records of a run folder that more than one room reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.model.spec import Expectation, ParameterValue

SCHEMA = "drill/bundle/1"


@dataclass(frozen=True)
class GroupRecord:
    """One process group as a rank saw it at run time. `ranks` are global, in group order."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RankRecord:
    """Who a rank is. `started`, `joined`, `trained`, `finished`: unix seconds, None if it never got there.

    `device_bus`: PCI address, as ``00000000:3b:00.0``; `device_index`: the driver's number of the card, where
    nothing renumbered it.
    """

    rank: int
    host: str
    pid: int
    local_rank: int
    attempt: int
    world_size: int
    device: str | None = None
    device_uuid: str | None = None
    started: float | None = None
    joined: float | None = None
    finished: float | None = None
    groups: tuple[GroupRecord, ...] = ()
    trained: float | None = None
    host_memory_bytes: int | None = None
    device_bus: str | None = None
    device_index: int | None = None


@dataclass(frozen=True)
class RankMap:
    """ranks.json: every rank that registered itself, newest attempt last."""

    world_size: int
    ranks: tuple[RankRecord, ...]


@dataclass(frozen=True)
class RankExit:
    """How a rank's process ended. `code` is negative for a signal; `cleanup`: stopped by us or its agent."""

    rank: int
    pid: int
    code: int | None
    signal: str | None
    at: float | None
    cleanup: bool = False


@dataclass(frozen=True)
class Attempt:
    """One start of all ranks. `stopping` is when the agent or we began to stop them, unix seconds."""

    attempt: int
    started: float
    pids: Mapping[int, int]
    exits: tuple[RankExit, ...] = ()
    stopping: float | None = None


@dataclass(frozen=True)
class LauncherRecord:
    """launcher.json: every attempt, and how the launcher itself ended."""

    attempts: tuple[Attempt, ...] = ()
    outcome: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Uncollected:
    """Something that should be in the bundle and is not, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Manifest:
    """bundle.json: what the evidence is and what it lacks. Says nothing of what was broken.

    `stopped`: when the harness itself began to stop the job, unix seconds. `notes`: what this run could not
    show, whatever it found.
    """

    world_size: int
    backend: str
    launcher: str
    created: float
    phases: tuple[str, ...] = ()
    host: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    collected: tuple[str, ...] = ()
    not_collected: tuple[Uncollected, ...] = ()
    notice: str | None = None
    stopped: float | None = None
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA


@dataclass(frozen=True)
class RunRecord:
    """run.json: what was asked for and what must be diagnosed. For the judge only."""

    drill: str
    mode: str
    culprits: tuple[int, ...]
    params: Mapping[str, ParameterValue]
    expectation: Expectation
    schema: str = "drill/run-record/1"


@dataclass(frozen=True)
class Injection:
    """One line of injection.jsonl. `event` is armed or fired; `t` unix seconds.

    `rank` is None for what was done to the job from outside.
    """

    event: str
    t: float
    rank: int | None
    fault: str
    step: int | None = None


@dataclass(frozen=True)
class Event:
    """One line of events.jsonl, on the harness's own clock. `t` unix seconds."""

    t: float
    what: str
    rank: int | None = None
    detail: str | None = None
