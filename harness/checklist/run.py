"""A whole run of a checklist: item after item, each stored as soon as it has ended."""

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.checklist.fingerprint import differences
from harness.checklist.standing import measured, newest_results
from harness.checklist.steps import check_drills, run_step
from harness.checklist.store import Chain, OpenEntry, Store
from harness.checklist.surroundings import Surroundings, chosen, title_of
from harness.model.checklist import (
    Checklist,
    ChecklistRun,
    Fingerprint,
    Item,
    ItemOutcome,
    ItemResult,
    StepResult,
    worst,
)
from harness.model.errors import Interrupted, PrerequisiteError

_CODES = {ItemOutcome.FAIL: 1, ItemOutcome.INCONCLUSIVE: 3, ItemOutcome.NOT_RUN: 4}


class Listener:
    """Is told how a run goes on; does nothing by itself."""

    def started(self, item: Item) -> None:
        """An item starts."""

    def step(self, item: Item, title: str) -> None:
        """A step of it starts."""

    def ended(self, item: Item, result: ItemResult) -> None:
        """It has ended; its result is stored."""


@dataclass(frozen=True)
class Finished:
    """What a run came to. `interrupted`: a signal ended it early."""

    run: ChecklistRun
    entry: OpenEntry
    interrupted: bool = False


@dataclass
class Runner:
    """Runs a checklist into a store. Call `run` from the main thread, holding no lock."""

    checklist: Checklist
    store: Store
    around: Surroundings
    fingerprint: Fingerprint
    listener: Listener = field(default_factory=Listener)

    def run(self, only: Sequence[str] = (), *, resume: bool = False) -> Finished:
        """Run all items, or some. With `resume` those are kept that a run before this one has finished.

        Raises:
            UsageError: no such item, or a drill that does not exist.
            PrerequisiteError: results cannot be written, or another run is at work here.
        """
        items = chosen(self.checklist, only)
        check_drills(self.checklist, items, self.around)
        with self.store.locked():
            chain = self.store.chain()
            remarks = [f"older results do not count: {chain.broken}"] if chain.broken else []
            kept = self._kept(chain, items) if resume else {}
            run = ChecklistRun(
                self.checklist.name,
                self.fingerprint,
                time.time(),
                platform.node(),
                tuple(kept.values()),
                remarks=(*remarks, *self._remarks()),
                planned=tuple(item.id for item in items),
            )
            try:
                entry = self.store.append(run)
            except OSError as error:
                raise self._unwritable(error) from None
            interrupted = False
            for item in items:
                if item.id in kept:
                    self.listener.ended(item, kept[item.id])
                    continue
                try:
                    result = self._item(item)
                except Interrupted:
                    interrupted = True
                    break
                run = replace(run, items=(*run.items, result))
                self._write(entry, run)
                self.listener.ended(item, result)
            run = replace(run, complete=not interrupted)
            self._write(entry, run)
            return Finished(run, entry, interrupted)

    def _kept(self, chain: Chain, items: Sequence[Item]) -> dict[str, ItemResult]:
        """Results of the last run that still hold: it ended early, and these had ended before."""
        last = next((e for e in reversed(chain.entries) if e.run is not None), None)
        if last is None or last.run is None or last.run.complete:
            return {}
        kept = {}
        found = newest_results(Chain((last,)))
        now = time.time()
        for item in items:
            done = found.get(item.id)
            if done is None or done.result.outcome not in (ItemOutcome.PASS, ItemOutcome.REHEARSED):
                continue
            changed = differences(done.fingerprint, self.fingerprint, hardware=item.needs is not None)
            if not changed and 0 <= now - done.result.finished <= item.valid_s:
                kept[item.id] = replace(done.result, carried_from=done.result.carried_from or last.hash)
        return kept

    def _item(self, item: Item) -> ItemResult:
        self.listener.started(item)
        begun = time.monotonic()
        results: list[StepResult] = []
        for step in item.steps:
            self.listener.step(item, title_of(step))
            previous = results[-1].bundle if results else None
            results.append(run_step(item, step, self.around, previous))
        outcome = worst([r.outcome for r in results])
        why = "; ".join(dict.fromkeys(r.why for r in results if r.outcome is outcome))
        seconds = round(time.monotonic() - begun, 2)
        return ItemResult(item.id, outcome, why, tuple(results), time.time(), seconds)

    def _remarks(self) -> list[str]:
        """What the job's own environment leaves open."""
        job = self.around.job
        unclear = [f"not understood: {skipped}" for skipped in job.not_understood]
        return [*unclear, *(f"assumed: {skipped}" for skipped in job.assumed)]

    def _write(self, entry: OpenEntry, run: ChecklistRun) -> None:
        try:
            entry.write(run)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> PrerequisiteError:
        return PrerequisiteError(
            f"{self.store.folder}: {error.strerror}: results cannot be kept, so nothing counts as passed; "
            "what was stored before is unharmed"
        )


def exit_code(checklist: Checklist, run: ChecklistRun) -> int:
    """Of all items the worst: 1 failed, 3 inconclusive, 4 not run, 0 passed or rehearsed.

    What waits for nothing but a person's signature does not count: that comes after the run.
    """
    codes = set()
    for result in run.items:
        item = checklist.item(result.id)
        codes.add(_CODES.get(measured(item, result) if item else result.outcome, 0))
    return next((code for code in (1, 3, 4) if code in codes), 0)
