"""A person signs: for all results, for single items, or against one that is waived for a while."""

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from harness.checklist.fingerprint import digest
from harness.checklist.keys import sign_with_gpg, sign_with_ssh
from harness.checklist.standing import Now, newest_results, payload, stand
from harness.checklist.store import Store
from harness.model.checklist import Checklist, ItemStanding, SignOff, Waiver
from harness.model.errors import PrerequisiteError, UsageError

MAX_WAIVER_DAYS = 90
"""A waiver is an exception that ends, not a deletion."""


@dataclass(frozen=True)
class Key:
    """What the person signs with besides their name, if anything."""

    ssh: Path | None = None
    gpg: str | None = None


@dataclass(frozen=True)
class Signed:
    """What came of signing. `refused`: items that cannot be signed for; then nothing was stored."""

    sign_off: SignOff
    path: Path | None
    refused: tuple[ItemStanding, ...] = ()


def waiver(item: str, reason: str, owner: str, until: str, now: float | None = None) -> Waiver:
    """A waiver until the end of a day, UTC.

    Raises:
        UsageError: no reason, no owner, or a day that is none, is over, or is more than 90 days away.
    """
    if not reason.strip() or not owner.strip():
        raise UsageError("--waive needs --reason and --owner: who answers for it, and why")
    try:
        day = date.fromisoformat(until)
        end = datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(days=1)
    except (ValueError, OverflowError):
        raise UsageError(f"--until {until}: give the last day as YYYY-MM-DD") from None
    left = end.timestamp() - (time.time() if now is None else now)
    if left <= 0:
        raise UsageError(f"--until {until}: that day is over")
    if left > (MAX_WAIVER_DAYS + 1) * 86400:
        raise UsageError(f"--until {until}: a waiver ends within {MAX_WAIVER_DAYS} days; renew it then")
    return Waiver(item, " ".join(reason.split()), " ".join(owner.split()), end.timestamp() - 1)


def sign(
    checklist: Checklist,
    store: Store,
    now: Now,
    name: str,
    items: Sequence[str] = (),
    waivers: Sequence[Waiver] = (),
    key: Key | None = None,
    *,
    accept_rehearsed: bool = True,
) -> Signed:
    """Bind a name, the time, the fingerprint and the very results together. `items`: all where empty.

    A waiver alone signs for nothing else.

    Raises:
        UsageError: no such item, no name, or the key's tool refuses.
        PrerequisiteError: nothing was run yet, or it cannot be stored.
    """
    if not name.strip():
        raise UsageError("--as: say who signs")
    for id_ in (*items, *(w.item for w in waivers)):
        if checklist.item(id_) is None:
            there = ", ".join(item.id for item in checklist.items)
            raise UsageError(f"{checklist.path}: there is no item '{id_}'; there are: {there}")
    with store.locked():
        chain = store.chain()
        results = newest_results(chain)
        if not results and not waivers:
            raise PrerequisiteError(
                f"{store.folder}: no results to sign: drill checklist run {checklist.path}"
            )
        only_waives = bool(waivers) and not items
        wanted = [] if only_waives else [i for i in checklist.items if not items or i.id in items]
        standings = stand(checklist, chain, now, accept_rehearsed=accept_rehearsed)
        by_id = {standing.item.id: standing for standing in standings}
        refused = tuple(by_id[i.id] for i in wanted if _cannot_sign(by_id[i.id]))
        found = [results[i.id] for i in wanted if i.id in results]
        sign_off = SignOff(
            checklist=checklist.name,
            name=" ".join(name.split()),
            signed=now.at,
            fingerprint=digest(now.fingerprint),
            covers={f.result.id: f.seal for f in found},
            waivers=tuple(waivers),
            host=platform.node(),
            checklist_file=now.fingerprint.checklist,
        )
        if refused:
            return Signed(sign_off, None, refused)
        signature = {}
        if key and key.ssh is not None:
            signature = sign_with_ssh(payload(sign_off), key.ssh)
        elif key and key.gpg is not None:
            signature = sign_with_gpg(payload(sign_off), key.gpg)
        try:
            entry = store.append(sign_off, signature)
        except OSError as error:
            raise PrerequisiteError(f"{store.folder}: {error.strerror}: nothing was signed") from None
        return Signed(sign_off, entry.path)


def _cannot_sign(standing: ItemStanding) -> bool:
    """Whether something other than a missing signature is in the way."""
    return any(obstacle.remedy.startswith("drill checklist run ") for obstacle in standing.obstacles)
