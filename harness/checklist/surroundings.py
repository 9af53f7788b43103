"""What all steps of a run share: the job's environment, a launcher, a folder for bundles, a way to stop."""

import os
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from harness.experiment import Progress
from harness.interrupts import signals_call
from harness.jobenv import JobEnvironment
from harness.launch.client import LauncherClient
from harness.model.checklist import Checklist, Item, Step
from harness.model.errors import UsageError
from harness.observe.gpus import gpu_count

JOB_FILES, RESULTS, PREVIOUS = "DRILL_JOB_FILES", "DRILL_RESULTS", "DRILL_PREVIOUS_BUNDLE"
"""What probes are told: the job's own files, where results are, the bundle of the step before."""

NEEDED = {None: 0, "gpu": 1, "gpus": 2}


@dataclass
class Surroundings:
    """What all steps of a run share; `open` makes them."""

    job: JobEnvironment
    bundles: Path
    client: LauncherClient
    drills_dirs: tuple[Path, ...] = ()
    backend: str = "auto"
    progress: Progress = lambda phase, detail: None
    stop: threading.Event = field(default_factory=threading.Event)
    extra: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def open(
        cls,
        job: JobEnvironment,
        bundles: Path,
        drills_dirs: tuple[Path, ...] = (),
        backend: str = "auto",
        client: LauncherClient | None = None,
    ) -> "Iterator[Surroundings]":
        """Surroundings whose runs a signal stops. Their launcher ends with the block, unless one is given."""
        with nullcontext(client) if client else LauncherClient() as client:
            extra = {
                JOB_FILES: os.pathsep.join(str(Path(name).resolve()) for name in job.files),
                RESULTS: str(bundles.parent.resolve()),
            }
            around = cls(job, bundles, client, drills_dirs, backend, extra=extra)
            with signals_call(around.stop.set):
                yield around

    def equipped(self, item: Item) -> bool:
        """Whether the real thing is here."""
        return equipped(item, self.backend)


def chosen(checklist: Checklist, only: Sequence[str]) -> list[Item]:
    """The items of those ids in the checklist's order; all of them where none is named.

    Raises:
        UsageError: no such item.
    """
    for id_ in only:
        if checklist.item(id_) is None:
            there = ", ".join(item.id for item in checklist.items)
            raise UsageError(f"--item {id_}: {checklist.path} has no such item; it has: {there}")
    return [item for item in checklist.items if not only or item.id in only]


def equipped(item: Item, backend: str) -> bool:
    """Whether what an item needs is on this machine, and wanted."""
    return backend != "gloo" and gpu_count() >= NEEDED[item.needs]


def title_of(step: Step) -> str:
    """What a step is called in reports."""
    if step.kind == "drill":
        whom = f" --culprit {step.culprit}" if step.culprit else ""
        return f"drill {step.name}{f' --mode {step.mode}' if step.mode else ''}{whom}"
    if step.kind == "command":
        return shlex.join(step.command)
    return f"{step.kind} {step.name}" if step.kind == "probe" else step.name
