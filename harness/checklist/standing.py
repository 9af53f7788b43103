"""Where every item stands now: its newest result, whether that still holds, and who signed for it."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.checklist.fingerprint import differences, digest
from harness.checklist.keys import Verifiers, why_not_verified
from harness.checklist.store import Chain, Entry
from harness.model.checklist import (
    Checklist,
    ChecklistRun,
    Fingerprint,
    Item,
    ItemOutcome,
    ItemResult,
    ItemStanding,
    Obstacle,
    SignOff,
    Waiver,
    worst,
)

SKEW_S = 120.0
"""Clocks of two machines may differ by so much; a result from further ahead is of a wrong clock."""

REHEARSAL = "cpu"
"""What a checklist says of a job that needs no GPU."""


@dataclass(frozen=True)
class Now:
    """What results are held against.

    `at`: unix seconds; `options`: those of this call that a command which mends an obstacle needs too.
    """

    fingerprint: Fingerprint
    at: float
    verifiers: Verifiers = field(default_factory=Verifiers)
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """An item's newest result, and the fingerprint of the run that it is of."""

    result: ItemResult
    fingerprint: Fingerprint

    @property
    def seal(self) -> str:
        """What a signature binds: this very result, and all that it was run for."""
        return digest((self.result, self.fingerprint))


def newest_results(chain: Chain) -> dict[str, Found]:
    """For each item the result of the newest run that has one; none where a newer run did not get to it."""
    found: dict[str, Found] = {}
    for entry in chain.entries:
        if entry.run is not None:
            for result in entry.run.items:
                found[result.id] = Found(result, entry.run.fingerprint)
            for id_ in _not_reached(entry.run):
                found.pop(id_, None)
    return found


def files_of_newest(chain: Chain) -> tuple[str, ...]:
    """The job's own files that the newest run was given."""
    newest = next((entry.run for entry in reversed(chain.entries) if entry.run is not None), None)
    return tuple(newest.fingerprint.files) if newest else ()


def cut_short(chain: Chain) -> frozenset[str]:
    """Items that were to be run again and have not ended since: the run died, or is at work now."""
    open_: set[str] = set()
    for entry in chain.entries:
        if entry.run is not None:
            open_ -= {result.id for result in entry.run.items}
            open_ |= _not_reached(entry.run)
    return frozenset(open_)


def _not_reached(run: ChecklistRun) -> set[str]:
    return set() if run.complete else {*run.planned} - {result.id for result in run.items}


def measured(item: Item, result: ItemResult) -> ItemOutcome:
    """What a machine found of an item; a person's own step, which waits for a signature, does not count."""
    found = [
        ItemOutcome.PASS if step.kind == "manual" and done.outcome is ItemOutcome.NOT_RUN else done.outcome
        for step, done in zip(item.steps, result.steps, strict=False)
    ]
    if not item.manual or len(found) != len(item.steps):
        return result.outcome
    return worst(found)


def stand(checklist: Checklist, chain: Chain, now: Now, *, accept_rehearsed: bool) -> list[ItemStanding]:
    """All items of a checklist in its order, each with what keeps the gate shut for it."""
    results = newest_results(chain)
    # Of another checklist's folder, or of one whose name this one has taken over: no signature for this one.
    signatures = [
        e for e in chain.entries if e.sign_off is not None and e.sign_off.checklist == checklist.name
    ]
    judge = _Judge(checklist, now, accept_rehearsed, signatures, cut_short(chain))
    return [judge.item(item, results.get(item.id)) for item in checklist.items]


def damage(checklist: Checklist, chain: Chain, options: tuple[str, ...] = ()) -> list[Obstacle]:
    """What is wrong with the stored results, if that is why some do not count."""
    if chain.broken is None or chain.entries:
        return []
    why = f"stored results do not count: {chain.broken}"
    return [Obstacle("results", why, _command("checklist run", checklist.path, options))]


def nothing_run(checklist: Checklist, options: tuple[str, ...] = ()) -> Obstacle:
    """What is in the way where all items are waived: a waiver excuses an item, not the whole checklist."""
    why = "every item is waived, and nothing was ever run"
    return Obstacle("results", why, _command("checklist run", checklist.path, options))


class _Judge:
    def __init__(
        self,
        checklist: Checklist,
        now: Now,
        accept_rehearsed: bool,
        signatures: Sequence[Entry],
        cut_short: frozenset[str],
    ) -> None:
        self._checklist = checklist
        self._now = now
        self._accept_rehearsed = accept_rehearsed
        self._signatures = signatures
        self._cut_short = cut_short

    def item(self, item: Item, found: Found | None) -> ItemStanding:
        waiver, over = self._waiver(item)
        standing = self._by_result(item, found)
        if waiver is not None and not over:
            why = f"{waiver.reason} (owner {waiver.owner}, until {_day(waiver.until)})"
            return replace(standing, outcome=ItemOutcome.WAIVED, why=why, waiver=waiver, obstacles=())
        if waiver is not None and standing.obstacles:
            ended = Obstacle(
                item.id,
                f"{over}, and {standing.obstacles[0].why}",
                standing.obstacles[0].remedy,
            )
            return replace(standing, waiver=waiver, obstacles=(ended,))
        if standing.obstacles or found is None:
            return standing
        return self._signed(standing, found)

    def _by_result(self, item: Item, found: Found | None) -> ItemStanding:
        """The standing by the stored result alone, before anybody's word."""
        if found is None and item.id in self._cut_short:
            why = "a run that was to renew it was cut short, or is at work now"
            remedy = _command(
                "checklist run", self._checklist.path, ("--resume", "--item", item.id, *self._now.options)
            )
            return ItemStanding(item, ItemOutcome.NOT_RUN, why, obstacles=(Obstacle(item.id, why, remedy),))
        if found is None:
            why = "never run"
            return ItemStanding(item, ItemOutcome.NOT_RUN, why, obstacles=(self._again(item, why),))
        result = found.result
        age = self._now.at - result.finished
        standing = ItemStanding(item, result.outcome, result.why, result, age)
        if why := self._stale(item, found, age):
            return replace(standing, obstacles=(self._again(item, why),))
        outcome = measured(item, result)
        if outcome is ItemOutcome.PASS:
            return standing
        if outcome is ItemOutcome.REHEARSED:
            if self._accept_rehearsed or self._checklist.job == REHEARSAL:
                return standing
            why = f"only rehearsed, and the job needs the real thing: a machine with {_needs(item)}"
            remedy = self._run(item)
            return replace(standing, obstacles=(Obstacle(item.id, why, remedy),))
        why = f"{result.outcome.value.replace('_', ' ')}: {result.why}"
        return replace(standing, obstacles=(self._again(item, why),))

    def _stale(self, item: Item, found: Found, age: float) -> str:
        """Why a result does not hold any more; empty if it does."""
        if age < -SKEW_S:
            return f"its result is of {-age:.0f} s from now: a clock is wrong"
        if age > item.valid_s:
            return f"its result is {_age(age)} old and holds for {_age(item.valid_s)}"
        changed = differences(found.fingerprint, self._now.fingerprint, hardware=item.needs is not None)
        if changed:
            more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
            return f"run for something else: {changed[0]}{more}"
        return ""

    def _signed(self, standing: ItemStanding, found: Found) -> ItemStanding:
        """With who signed for this very result, or what keeps a signature from counting."""
        item, wanted = standing.item, found.seal
        refused = ""
        for entry in reversed(self._signatures):
            sign_off = entry.sign_off
            assert sign_off is not None
            if item.id not in sign_off.covers:
                continue
            if sign_off.covers[item.id] != wanted:
                refused = refused or f"run again after {sign_off.name} signed"
            elif sign_off.signed - self._now.at > SKEW_S:
                refused = refused or f"{sign_off.name}'s signature is from the future: a clock is wrong"
            elif why := self._key_refused(entry, sign_off):
                refused = refused or why
            else:
                passed = ItemOutcome.PASS if standing.item.manual else standing.outcome
                why = f"signed by {sign_off.name}" if standing.item.manual else standing.why
                return replace(standing, outcome=passed, why=why, signed_by=sign_off.name)
        word = "only a person can pass it, and nobody has" if item.manual else "nobody has signed for it"
        only = ("--item", item.id) if item.manual else ()
        remedy = _command("checklist sign", self._checklist.path, (*only, *self._out(), "--as", "NAME"))
        return replace(standing, obstacles=(Obstacle(item.id, refused or word, remedy),))

    def _key_refused(self, entry: Entry, sign_off: SignOff) -> str | None:
        if not self._now.verifiers.any:
            return None
        return why_not_verified(payload(sign_off), entry.key_signature, sign_off.name, self._now.verifiers)

    def _waiver(self, item: Item) -> tuple[Waiver | None, str]:
        """The newest waiver of an item, if its signature counts; and why it does not hold, if it does not."""
        for entry in reversed(self._signatures):
            sign_off = entry.sign_off
            assert sign_off is not None
            waiver = next((w for w in sign_off.waivers if w.item == item.id), None)
            if waiver is None:
                continue
            if self._key_refused(entry, sign_off):
                return None, ""
            if sign_off.checklist_file != self._now.fingerprint.checklist:
                return waiver, "its waiver is of the checklist before it was changed"
            if sign_off.signed - self._now.at > SKEW_S:
                return waiver, "its waiver is from the future: a clock is wrong"
            return waiver, "" if waiver.until >= self._now.at else f"its waiver ended on {_day(waiver.until)}"
        return None, ""

    def _again(self, item: Item, why: str) -> Obstacle:
        return Obstacle(item.id, why, self._run(item))

    def _run(self, item: Item) -> str:
        options = ("--item", item.id, *self._now.options)
        return _command("checklist run", self._checklist.path, options)

    def _out(self) -> tuple[str, ...]:
        options = self._now.options
        at = options.index("--out") if "--out" in options else len(options)
        return options[at : at + 2]


def payload(sign_off: SignOff) -> bytes:
    """What a key signs: the digest of all that a sign-off says."""
    return f"drill checklist sign-off {digest(sign_off)}\n".encode()


def tally(standings: Sequence[ItemStanding]) -> Mapping[ItemOutcome, int]:
    """How many items came to what, in the order of `ItemOutcome`."""
    return {o: n for o in ItemOutcome if (n := sum(s.outcome is o for s in standings))}


def _command(verb: str, path: Path, options: Sequence[str]) -> str:
    return shlex.join(("drill", *verb.split(), str(path), *options))


def _needs(item: Item) -> str:
    return "two GPUs or more" if item.needs == "gpus" else "a GPU"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _age(seconds: float) -> str:
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit or (name == "min" and seconds >= unit):
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
