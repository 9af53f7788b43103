"""Results as files, one a run or sign-off, each with the hash of the one before it.

The chain shows accidents: an edited, truncated, lost or mixed-up file. Whoever can write the folder can forge
all of it: against that only a signature with a key helps (`harness.checklist.keys`).
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.bundle.codec import to_json, write_atomically
from harness.checklist.fingerprint import digest, digest_of_json
from harness.model.checklist import ChecklistRun, SignOff
from harness.model.errors import PrerequisiteError

FOLDER = Path("runs") / "checklists"
MAX_BYTES = 64 << 20
NEWEST = ".newest"
"""Holds the number of the newest file, so that losing that one shows, too."""
START = "start"
"""What the first file has in place of a hash."""


@dataclass(frozen=True)
class Entry:
    """One stored run or sign-off. `hash`: of its own bytes, which the next one names."""

    number: int
    path: Path
    hash: str
    body: ChecklistRun | SignOff
    key_signature: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> ChecklistRun | None:
        """The run, if it is one."""
        return self.body if isinstance(self.body, ChecklistRun) else None

    @property
    def sign_off(self) -> SignOff | None:
        """The sign-off, if it is one."""
        return self.body if isinstance(self.body, SignOff) else None


@dataclass(frozen=True)
class Chain:
    """Entries that hold together, oldest first. `broken`: why what is older than the first does not count."""

    entries: tuple[Entry, ...]
    broken: str | None = None


class Store:
    """The folder of one checklist's results.

    Entries are never changed once a run is complete; a run in progress replaces its own file item by item.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, name: str, out: Path | None = None) -> "Store":
        """The folder of a checklist's name, under `out` or the usual place."""
        return cls((out or FOLDER) / name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else runs or signs this checklist here meanwhile. The lock goes with the process.

        Raises:
            PrerequisiteError: another process has it, or the folder cannot be written.
        """
        path = self.folder / ".lock"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = path.open("a+")
        except OSError as error:
            raise PrerequisiteError(
                f"{self.folder}: {error.strerror}: give a folder that you can write with --out"
            ) from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                who = file.read(100).strip() or "another process"
                raise PrerequisiteError(
                    f"{self.folder}: {who} is at work on this checklist: wait for it, or stop it"
                ) from None
            # Who it is is told for convenience: on a full disk the lock holds without.
            with suppress(OSError):
                file.truncate(0)
                os.write(file.fileno(), f"process {os.getpid()} of {os.uname().nodename}".encode())
            yield
            with suppress(OSError):
                file.truncate(0)

    def chain(self) -> Chain:
        """All entries from the newest back to the first damage."""
        entries: list[Entry] = []
        wanted: str | None = None
        files = self._files()
        if (lost := self._newest()) > (files[-1][0] if files else 0):
            return _chain([], f"the newest file, number {lost}, is missing")
        for number, path in reversed(files):
            loaded = _load(number, path)
            if isinstance(loaded, str):
                return _chain(entries, f"{path.name}: {loaded}")
            entry, previous = loaded
            if wanted is not None and wanted != entry.hash:
                return _chain(entries, f"{path.name} is not the file that the next one was written after")
            entries.append(entry)
            wanted = previous
        if wanted not in (None, START):
            return _chain(entries, f"the file before {entries[-1].path.name} is missing")
        return _chain(entries, None)

    def append(
        self, body: ChecklistRun | SignOff, key_signature: dict[str, str] | None = None
    ) -> "OpenEntry":
        """Add an entry; hold the lock meanwhile.

        Raises:
            OSError: it cannot be written; nothing has changed then.
        """
        files = self._files()
        last, newest = files[-1][0] if files else 0, self._newest()
        number = max(last, newest) + 1
        # After a loss the chain begins anew: what is older must not count again.
        joined = files and newest <= last
        previous = hashlib.sha256(files[-1][1].read_bytes()).hexdigest() if joined else START
        kind = "run" if isinstance(body, ChecklistRun) else "sign-off"
        entry = OpenEntry(self.folder / f"{number:04d}-{kind}.json", previous)
        entry.write(body, key_signature)
        with suppress(OSError):
            write_atomically(self.folder / NEWEST, f"{number}\n".encode())
        return entry

    def _newest(self) -> int:
        """The number of the newest file that was written here; 0 where that is not on record."""
        with suppress(OSError, ValueError):
            return int((self.folder / NEWEST).read_text()[:20])
        return 0

    def _files(self) -> list[tuple[int, Path]]:
        found = []
        for path in self.folder.glob("[0-9]*-*.json"):
            number = path.name.partition("-")[0]
            if number.isdecimal():
                found.append((int(number), path))
        return sorted(found)


@dataclass(frozen=True)
class OpenEntry:
    """A file of the store that its own run may still replace."""

    path: Path
    previous: str

    def write(self, body: ChecklistRun | SignOff, key_signature: dict[str, str] | None = None) -> None:
        """Replace the whole file: a reader, or a crash, sees the old one or the new one.

        Raises:
            OSError: the disk is full or the folder is not writable.
        """
        document = {
            "previous": self.previous,
            "body": to_json(body),
            "digest": digest(body),
            "key_signature": key_signature or {},
        }
        write_atomically(self.path, json.dumps(document, indent=1).encode() + b"\n")


def _chain(newest_first: list[Entry], broken: str | None) -> Chain:
    return Chain(tuple(reversed(newest_first)), broken)


_BODIES: dict[str, TypeAdapter[Any]] = {}


def _body(document: object) -> ChecklistRun | SignOff:
    """A stored body, by its schema; strict about what is missing or of another type."""
    schema = document.get("schema") if isinstance(document, dict) else None
    kinds = {ChecklistRun.schema: ChecklistRun, SignOff.schema: SignOff}
    if schema not in kinds:
        raise ValueError(f"its schema is {schema!r}, which this version does not know")
    if schema not in _BODIES:
        _BODIES[schema] = TypeAdapter(kinds[schema])
    found: ChecklistRun | SignOff = _BODIES[schema].validate_python(document)
    return found


def _load(number: int, path: Path) -> tuple[Entry, str] | str:
    """An entry and the hash that it follows, or what is wrong with the file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return f"larger than {MAX_BYTES >> 20} MiB"
        data = path.read_bytes()
        document = json.loads(data)
        previous, stated = document["previous"], document["digest"]
        if digest_of_json(document["body"]) != stated:
            return "was edited: its content does not fit its own hash"
        body = _body(document["body"])
        signature = document.get("key_signature", {})
        if not isinstance(previous, str) or not isinstance(signature, dict):
            raise TypeError(signature)
        for text in (*signature, *signature.values()):
            # What is no text, or none that can be written into a file for ssh-keygen or gpg, raises here.
            text.encode()
    except OSError as error:
        return error.strerror or "cannot be read"
    except ValidationError as error:
        return f"is damaged: {error.errors()[0]['msg']}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = str(error) if isinstance(error, ValueError) and "schema" in str(error) else ""
        return said or "is damaged: truncated, or not written by drill"
    return Entry(number, path, hashlib.sha256(data).hexdigest(), body, signature), previous
