"""Small checklists whose steps are quick commands, and runs of them."""

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.checklist.fingerprint import take_fingerprint
from harness.checklist.run import Finished, Listener, Runner
from harness.checklist.schema import read_checklist
from harness.checklist.standing import Now, stand
from harness.checklist.store import Store
from harness.checklist.surroundings import Surroundings
from harness.jobenv import JobEnvironment
from harness.model.checklist import Checklist, Item, ItemResult, ItemStanding

NO_JOB = JobEnvironment()
HEAD = "schema: drill/checklist-file/1\nname: mine\njob: {job}\nitems:\n"


def prints(figures: Mapping[str, object], passes: str, code: int = 0) -> str:
    """A step: a command that prints figures and ends with a code, and what passes."""
    text = f"print({json.dumps(dict(figures))!r}); raise SystemExit({code})"
    return json.dumps({"command": [sys.executable, "-c", text], "pass": passes, "timeout": "20s"})


def item(id_: str, *steps: str, **keys: str) -> str:
    """An item with these steps, each a flow mapping, and further keys."""
    more = "".join(f"    {key}: {value}\n" for key, value in keys.items())
    lines = "".join(f"      - {step}\n" for step in steps)
    head = f"  - id: {id_}\n    title: The {id_}\n    does: it\n    criterion: it does\n"
    return f"{head}{more}    steps:\n{lines}"


GOOD = item("good", prints({"rate": 0.98}, "rate >= 0.95"))
BAD = item("bad", prints({"rate": 0.5}, "rate >= 0.95"))
PERSON = item("person", '{manual: I have looked, files: [{path: runbook.md, newer_than: "post/*.md"}]}')


def checklist(folder: Path, *items: str, job: str = "cpu") -> Checklist:
    """A checklist file in a folder."""
    path = folder / "mine.yaml"
    path.write_text(HEAD.format(job=job) + "".join(items))
    return read_checklist(path)


def run(
    made: Checklist,
    store: Store,
    only: Sequence[str] = (),
    resume: bool = False,
    job: JobEnvironment = NO_JOB,
    listener: "StopAfter | None" = None,
) -> Finished:
    """Run it here and now."""
    fingerprint = take_fingerprint(made, job, store.folder)
    with Surroundings.open(job, store.folder / "bundles") as around:
        if listener is not None:
            listener.stop = around.stop
        return Runner(made, store, around, fingerprint, listener or Listener()).run(only, resume=resume)


class StopAfter(Listener):
    """Asks the run to stop when an item has ended, as a signal would."""

    def __init__(self, id_: str) -> None:
        self._id = id_
        self.stop = threading.Event()

    def ended(self, item: Item, result: ItemResult) -> None:
        if item.id == self._id:
            self.stop.set()


def now(made: Checklist, store: Store, later_s: float = 0.0, job: JobEnvironment = NO_JOB) -> Now:
    """This moment, or a later one."""
    return Now(take_fingerprint(made, job, store.folder), time.time() + later_s)


def standings(
    made: Checklist, store: Store, later_s: float = 0.0, accept_rehearsed: bool = False
) -> dict[str, ItemStanding]:
    """Where each item stands, by id."""
    found = stand(made, store.chain(), now(made, store, later_s), accept_rehearsed=accept_rehearsed)
    return {standing.item.id: standing for standing in found}
