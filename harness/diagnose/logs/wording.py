"""Sentences about what logs say, for a tired person, and lines as evidence."""

import re
from typing import TYPE_CHECKING

from harness.diagnose.logs.event import Event
from harness.model.diagnosis import Citation
from harness.model.kinds import Kind
from harness.model.ranks import format_ranks

if TYPE_CHECKING:
    from harness.diagnose.logs.failures import Failure

MAX_SAID = 160

_TAG = re.compile(r"^\[(?:PG |Rank )[^\]]{1,200}\]:?\s*")


_HAPPENED = {
    Kind.HOST_OOM: "ran out of host memory",
    Kind.DEVICE_OOM: "ran out of device memory",
    Kind.HARDWARE_FAULT: "has a fault of its card",
    Kind.DEVICE_ASSERT: "broke an assertion or a bound on its card",
    Kind.STORAGE_FAILURE: "lost its storage",
    Kind.CHECKPOINT_FAILED: "failed to save or load a checkpoint",
    Kind.LOSS_NOT_FINITE: "has numbers that are not finite",
    Kind.DATA_CORRUPT: "read damaged data",
}


def cite(event: Event, rank: int | None = None, says: str | None = None) -> Citation:
    """A log line as evidence: what it says, or what it shows and then its words."""
    source = "kernel" if event.what in ("xid", "kernel_oom") else "log"
    if says is None and event.what == "block_exit" and event.rank is not None:
        says = f"rank {event.rank} in the launcher's block"
    words = short(event.text) if says is None else f"{says}: {short(event.text)}"
    return Citation(source, words, event.file, event.line, rank=rank if event.rank is None else event.rank)


def short(text: str) -> str:
    """The beginning of a message without its group's tag, cut at a word."""
    text = _TAG.sub("", text, count=1).lstrip()
    if len(text) <= MAX_SAID:
        return text
    return f"{text[:MAX_SAID].rsplit(' ', 1)[0]} ..."


def who(ranks: tuple[int, ...] | list[int]) -> str:
    """``rank 5`` or ``ranks 1,3-4``."""
    return f"rank{'s' if len(set(ranks)) > 1 else ''} {format_ranks(ranks)}"


def say_failure(failure: "Failure") -> str:
    """Who failed, and how."""
    ranks = failure.accused
    hosts = ", ".join(failure.hosts)
    if failure.kind is Kind.NODE_LOST:
        of = f" ({who(ranks)})" if ranks else ""
        return f"node {hosts or 'of unknown name'}{of} is lost: {short(failure.event.text)}"
    if ranks:
        return f"{who(ranks)} {what_it_says(failure)}"
    local = failure.event.local_rank
    if local is None:
        local = failure.event.numbers.get("local_rank")
    place = f"local rank {local}" if local is not None else "a rank"
    if failure.event.pid is not None and local is None:
        place = f"process {failure.event.pid}"
    return f"{place} of {hosts or f'the node that wrote {failure.event.file}'} {what_it_says(failure)}"


def what_it_says(failure: "Failure") -> str:
    """What happened to whoever failed."""
    event = failure.event
    said = short(event.text)
    if failure.kind is Kind.HOST_OOM and failure.how == "shared_memory":
        return f"ran out of shared memory: {said}"
    if failure.kind in _HAPPENED:
        return f"{_HAPPENED[failure.kind]}: {said}"
    if failure.how == "exception":
        site = event.words.get("site")
        return f"raised {said}" + (f" in {site}" if site else "")
    if failure.signal:
        return f"was ended by {failure.signal}: {said}"
    code = event.numbers.get("code")
    return f"ended with exit code {code}" if code is not None else f"ended: {said}"
