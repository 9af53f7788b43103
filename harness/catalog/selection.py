"""Which runs a command asks for: named drills, all, those with a tag, or a sweep over modes and ranks."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.catalog.find import all_drills, find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.plan import RunPlan
from harness.model.ranks import format_ranks
from harness.model.spec import DrillSpec
from harness.observe.machine import look


@dataclass(frozen=True)
class Selection:
    """What to run. `repeat`: so many times each; `sweep`: every mode and, where a rank breaks, every rank."""

    names: tuple[str, ...] = ()
    every: bool = False
    tags: tuple[str, ...] = ()
    sweep: bool = False
    repeat: int = 1

    @property
    def several(self) -> bool:
        """Whether more than one run is asked for, however many there turn out to be."""
        return self.every or bool(self.tags) or self.sweep or self.repeat > 1 or len(self.names) > 1


@dataclass(frozen=True)
class RunTitle:
    """What a run is called before it has run. `turn` of `turns`: which repetition of the same run."""

    drill: str
    mode: str
    culprits: tuple[int, ...]
    turn: int = 1
    turns: int = 1

    @property
    def broken(self) -> str:
        """Whom the run breaks, for people."""
        if not self.culprits:
            return "no rank"
        return f"{'rank' if len(self.culprits) == 1 else 'ranks'} {format_ranks(self.culprits)}"

    @property
    def case(self) -> str:
        """Mode, ranks and repetition."""
        turn = f", {self.turn} of {self.turns}" if self.turns > 1 else ""
        return f"{self.mode}, {self.broken}{turn}" if self.culprits else f"{self.mode}{turn}"

    def __str__(self) -> str:
        return f"{self.drill} {self.case}"


@dataclass(frozen=True)
class PlannedRun:
    """One run: its plan, or the missing prerequisite that keeps it from being planned."""

    title: RunTitle
    plan: RunPlan | PrerequisiteError


def plan_selection(
    selection: Selection,
    sources: Sources,
    drills_dirs: Sequence[Path] = (),
    job_env: Mapping[str, str] | None = None,
) -> list[PlannedRun]:
    """Plan every run of a selection; a missing prerequisite of one keeps no other from being planned.

    `job_env`: the real job's variables, for production fidelity.

    Raises:
        UsageError: nothing is selected, no drill has the tag, or a setting does not fit a selected drill.
    """
    planned = []
    for spec in _specs(selection, drills_dirs):
        for narrowed in _variants(spec, selection, _fitting(spec, selection, sources)):
            settings = settle(spec, narrowed)
            culprits = settings["culprit"].value
            assert isinstance(culprits, tuple)
            plan: RunPlan | PrerequisiteError
            try:
                plan = plan_run(spec, settings, job_env)
                culprits = plan.culprits
            except PrerequisiteError as error:
                plan = error
            except UsageError as error:
                raise UsageError(f"{spec.name}: {error}" if selection.several else str(error)) from None
            for turn in range(1, selection.repeat + 1):
                title = RunTitle(spec.name, str(settings["mode"].value), culprits, turn, selection.repeat)
                planned.append(PlannedRun(title, plan))
    return planned


def with_tags(specs: Sequence[DrillSpec], tags: Sequence[str]) -> list[DrillSpec]:
    """The drills that carry one of `tags`.

    Raises:
        UsageError: no drill carries a tag.
    """
    known = sorted({tag for spec in specs for tag in spec.tags})
    for tag in tags:
        if tag not in known:
            raise UsageError(f"--tag {tag}: no drill has it; there are: {', '.join(known)}")
    return [spec for spec in specs if set(tags) & set(spec.tags)]


def _specs(selection: Selection, drills_dirs: Sequence[Path]) -> list[DrillSpec]:
    if selection.names:
        if selection.every or selection.tags:
            raise UsageError("name the drills to run, or select them by --all or --tag, not both")
        return [find_drill(name, drills_dirs) for name in selection.names]
    if selection.tags:
        return with_tags(all_drills(drills_dirs), selection.tags)
    if not (selection.every or selection.sweep):
        raise UsageError("name the drills to run, or --all, --tag or --sweep; `drill list` shows them")
    return all_drills(drills_dirs)


def _fitting(spec: DrillSpec, selection: Selection, sources: Sources) -> Sources:
    """Without names, ``--culprit`` means the drills that break a rank."""
    if selection.names or spec.culprit:
        return sources
    return _with_flags(sources, culprit=None)


def _variants(spec: DrillSpec, selection: Selection, sources: Sources) -> Iterator[Sources]:
    """The sources of each run: one, or in a sweep one for every mode and culprit that no flag fixes."""
    if not selection.sweep:
        yield sources
        return
    nproc = settle(spec, sources)["nproc"].value
    assert isinstance(nproc, int)
    without = _needing_a_card(spec, sources)
    modes = [m for m in spec.modes if m not in without]
    if "mode" in sources.flags:
        modes = [sources.flags["mode"]]
    fixed = "culprit" in sources.flags or not spec.culprit
    for mode in modes:
        nobody = mode in spec.modes and spec.modes[mode].expect.accused == "nobody"
        for rank in [None] if fixed or nobody else range(nproc):
            swept = _with_flags(sources, mode=mode)
            yield swept if rank is None else _with_flags(swept, culprit=str(rank))


def left_out_of_sweep(
    selection: Selection, sources: Sources, drills_dirs: Sequence[Path] = ()
) -> dict[str, str]:
    """Drill and mode of what a sweep leaves out on this machine, and why: what only a card can show.

    A mode that is asked for by name is not left out: that it cannot run is its result then.
    """
    if not selection.sweep or "mode" in sources.flags:
        return {}
    return {
        f"{spec.name} {mode}": why
        for spec in _specs(selection, drills_dirs)
        for mode, why in _needing_a_card(spec, _fitting(spec, selection, sources)).items()
    }


def _needing_a_card(spec: DrillSpec, sources: Sources) -> dict[str, str]:
    """The modes of a drill that need a card which this run has not, and why."""
    needing = [name for name, mode in spec.modes.items() if "gpu" in mode.needs]
    if not needing:
        return {}
    why = "gloo asked for" if settle(spec, sources)["backend"].value == "gloo" else look().why_no_nccl
    return dict.fromkeys(needing, why) if why else {}


def _with_flags(sources: Sources, **changes: str | None) -> Sources:
    flags = {**sources.flags, **changes}
    return dataclasses.replace(sources, flags={k: v for k, v in flags.items() if v is not None})
