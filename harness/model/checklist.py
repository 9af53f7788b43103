"""A pre-training checklist: its items, what each came to, and who signed for it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from harness.model.spec import ParameterValue

RESULTS_SCHEMA = "drill/checklist-results/1"
SIGN_OFF_SCHEMA = "drill/checklist-sign-off/1"

Figure = bool | int | float | str | None
"""One measured value; the text of a list or table is its JSON."""


class ItemOutcome(str, Enum):
    """What an item came to. Only a pass opens a gate, or a rehearsal where the job needs no more."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not_run"
    REHEARSED = "rehearsed"
    WAIVED = "waived"


_WORST_FIRST = (
    ItemOutcome.FAIL,
    ItemOutcome.INCONCLUSIVE,
    ItemOutcome.NOT_RUN,
    ItemOutcome.REHEARSED,
    ItemOutcome.PASS,
)


def worst(outcomes: Collection[ItemOutcome]) -> ItemOutcome:
    """What several outcomes come to together; nothing at all is not run."""
    return next((outcome for outcome in _WORST_FIRST if outcome in outcomes), ItemOutcome.NOT_RUN)


@dataclass(frozen=True)
class Step:
    """One thing that an item does: a drill, a probe of ours, any command, or a person's own look.

    `passes`: an expression over the figures of a probe or command (`harness.checklist.expressions`).
    `rehearsal` takes this step's place where `needs` is not there; `arguments` are the probe's options.
    `seconds`: about how long it takes. `line` is where it stands in its file.
    """

    kind: str
    name: str
    line: int
    mode: str | None = None
    culprit: str | None = None
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    arguments: Mapping[str, ParameterValue] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    passes: str | None = None
    shows: tuple[str, ...] = ()
    timeout_s: float = 300.0
    seconds: float = 10.0
    rehearsal: "Step | None" = None
    files: tuple["FileDemand", ...] = ()


@dataclass(frozen=True)
class FileDemand:
    """A document that must exist, newer than all files of a glob (postmortems), no older than so long."""

    path: str
    newer_than: str | None = None
    max_age_s: float | None = None


@dataclass(frozen=True)
class Item:
    """One line of the checklist. `needs` is gpu, gpus (two or more) or None; `valid_s` how long a pass holds.

    `whole_machine`: it measures or loads the machine, so nothing else may run beside it.
    """

    id: str
    title: str
    does: str
    criterion: str
    source: str
    line: int
    steps: tuple[Step, ...]
    needs: str | None = None
    valid_s: float = 7 * 86400.0
    whole_machine: bool = False

    @property
    def manual(self) -> bool:
        """Whether a person must sign for this very item: no machine can pass it."""
        return any(step.kind == "manual" for step in self.steps)


@dataclass(frozen=True)
class Checklist:
    """One YAML file. `job`: gpu if the job that it gates needs the real thing, cpu if rehearsals will do."""

    name: str
    path: Path
    job: str
    summary: str
    items: tuple[Item, ...]

    def item(self, id_: str) -> Item | None:
        """The item of that id."""
        return next((item for item in self.items if item.id == id_), None)


@dataclass(frozen=True)
class StepResult:
    """What one step came to. `bundle`: its folder, relative to the results' folder."""

    title: str
    outcome: ItemOutcome
    why: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    passes: str | None = None
    shows: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    bundle: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class ItemResult:
    """What an item came to. `finished`: unix seconds; `carried_from`: hash of the run that it comes from."""

    id: str
    outcome: ItemOutcome
    why: str
    steps: tuple[StepResult, ...]
    finished: float
    seconds: float
    carried_from: str | None = None


@dataclass(frozen=True)
class Fingerprint:
    """What a result is about: it holds for this code, configuration, software and machines only.

    `code`: commit, and a hash of what is not committed. `environment`: variables that decide how a job runs.
    """

    checklist: str
    code: Mapping[str, str]
    environment: Mapping[str, str]
    files: Mapping[str, str]
    versions: Mapping[str, str]
    topology: Mapping[str, str]


@dataclass(frozen=True)
class ChecklistRun:
    """One run of a checklist as it is stored. `complete` is false until its last item has ended.

    `planned`: the items that it set out to run; of those that it did not get to, no older result counts.
    """

    checklist: str
    fingerprint: Fingerprint
    started: float
    host: str
    items: tuple[ItemResult, ...] = ()
    complete: bool = False
    remarks: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    schema: str = RESULTS_SCHEMA


@dataclass(frozen=True)
class Waiver:
    """An item that does not pass and need not, for a reason, until a moment (unix seconds)."""

    item: str
    reason: str
    owner: str
    until: float


@dataclass(frozen=True)
class SignOff:
    """A person's word for results. `covers`: item -> digest of the very result that was signed.

    `fingerprint`: digest of what it was signed for; `signed`: unix seconds.
    `checklist_file`: hash of the file whose items the waivers are of.
    """

    checklist: str
    name: str
    signed: float
    fingerprint: str
    covers: Mapping[str, str] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()
    host: str = ""
    checklist_file: str = ""
    schema: str = SIGN_OFF_SCHEMA


@dataclass(frozen=True)
class Obstacle:
    """One thing that keeps a gate shut. `remedy` is a command that removes it."""

    item: str
    why: str
    remedy: str


@dataclass(frozen=True)
class ItemStanding:
    """One item as a gate sees it now. `age_s` of its result; None where there is none."""

    item: Item
    outcome: ItemOutcome
    why: str
    result: ItemResult | None = None
    age_s: float | None = None
    waiver: Waiver | None = None
    signed_by: str | None = None
    obstacles: tuple[Obstacle, ...] = ()
