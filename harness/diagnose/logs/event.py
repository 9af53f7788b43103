"""One thing that a log line says: the event that serves all rules of log triage."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class RankFrom(str, Enum):
    """Where an event's rank was read from. Only the strong ones convict (DIAGNOSIS, logs, rule 2)."""

    PREFIX = "prefix"
    """``[rank3]:``, mpirun's ``[1,3]<stderr>:`` or Lightning's ``[rank: 3]``: global by definition."""

    FILE = "file"
    """The file's name or torchrun's folder of the only agent."""

    DEFAULT_GROUP = "default_group"
    """``[PG ID 0 PG GUID 0(default_pg) Rank 3]``: the rank in the group of all ranks."""

    BLOCK = "block"
    """torchrun's own block of failures."""

    PID = "pid"
    """A process that another line ties to its rank."""

    DEVICE = "device"
    """A bus id that NCCL's start ties to its rank."""

    TASK = "task"
    """srun's label or task number, where every rank is a task of its own."""

    CONTEXT = "context"
    """A line without a prefix shortly after a line of that rank."""

    GROUP = "group"
    """A rank inside a group that need not be the group of all: never convicts."""

    NAMED = "named"
    """Somebody else names it."""


STRONG = frozenset(
    (
        RankFrom.PREFIX,
        RankFrom.FILE,
        RankFrom.DEFAULT_GROUP,
        RankFrom.BLOCK,
        RankFrom.PID,
        RankFrom.DEVICE,
        RankFrom.TASK,
    )
)


@dataclass(frozen=True)
class Group:
    """A process group as a tag names it. `uid` is torch's GUID, `name` its description."""

    uid: str
    name: str = ""
    rank: int | None = None

    @property
    def is_default(self) -> bool:
        """Whether it is the group of all ranks."""
        return self.name == "default_pg" or (self.uid == "0" and self.name in ("", "undefined"))

    @property
    def label(self) -> str:
        """What people call it."""
        return "default_pg" if self.is_default else f"{self.name or 'group'} {self.uid}".strip()


@dataclass(frozen=True, eq=False)
class Event:
    """One thing said, once, and equal to itself only; `line` counts from 1.

    `what` is a class of `classes.CLASSES`, `tier` 1 kills processes, 2 breaks training loops, 3 is input and
    output, 0 is context. `text` is the message without what stands around it. `at`: unix seconds on the clock
    of its file, None if unknown, exact to `precision_s`. `rank` is global unless `rank_from` says otherwise.
    `named`: ranks that the line names, apart from who speaks. `host`, `local_rank`, `pid`, `task` are the
    speaker's, or whom a launcher, scheduler or kernel speaks of. `symptom_of` says why it is
    a consequence. `after_step`: the step that its file had reported last. `repeats`: how often it was
    said more; `dropped`: how many of its like were left out by
    whoever wrote the log.
    """

    what: str
    tier: int
    file: str
    line: int
    text: str
    at: float | None = None
    precision_s: float = 1.0
    attempt: int = 0
    rank: int | None = None
    rank_from: RankFrom | None = None
    group: Group | None = None
    host: str | None = None
    local_rank: int | None = None
    pid: int | None = None
    task: int | None = None
    device: str | None = None
    named: tuple[int, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    symptom_of: str | None = None
    after_step: int | None = None
    repeats: int = 0
    dropped: int = 0

    @property
    def strong(self) -> bool:
        """Whether its rank is known well enough to convict."""
        return self.rank is not None and self.rank_from in STRONG

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"

    def placed(
        self,
        rank: int | None,
        rank_from: RankFrom | None,
        host: str | None,
        at: float | None,
        precision_s: float,
    ) -> "Event":
        """The event of this rank and host, at this time."""
        return self._with(rank=rank, rank_from=rank_from, host=host, at=at, precision_s=precision_s)

    def as_symptom(self, why: str) -> "Event":
        """The event as a consequence of something else."""
        return self._with(symptom_of=why)

    def _with(self, **changes: object) -> "Event":
        # As dataclasses.replace, at a tenth of its cost: it is done to every event.
        changed = object.__new__(Event)
        changed.__dict__.update(self.__dict__, **changes)
        return changed
