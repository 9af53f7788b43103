"""What gloo, the store, the debug wrapper and monitored barriers say of communication."""

import re

from harness.diagnose.logs.classes import KILLER, LOOP, LineClass, Parsed, ranks_in

_FINGERPRINT = re.compile(
    r"Rank (\d{1,7}) is running collective: CollectiveFingerPrint\((?:SequenceNumber=(\d{1,15}),? "
    r"?)?OpType=(\w{1,40})"
)
_NBYTES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d{1,20}) vs (\d{1,20})")
_WAIT = re.compile(r"Timed out waiting (\d{1,12}) ?ms for (?:send|recv)")
_FAILED_TO_PASS = re.compile(
    r"Ranks? ([\d, ]{1,20000}) failed to pass monitoredBarrier(?: in (\d{1,12}) ms)?"
)
_REACHED = re.compile(r"Rank (\d{1,7}) successfully reached monitoredBarrier")
_BARRIER = re.compile(
    r"store based barrier on rank: ?(\d{1,7}).{0,200}?world_size=(\d{1,7}), worker_count=(\d{1,7})"
)
_CLIENTS = re.compile(
    r"Timed out after (\d{1,9}) seconds waiting for clients\. (\d{1,7})/(\d{1,7}) clients joined"
)


def mismatch(message: str) -> Parsed | None:
    """The debug wrapper's report; its ranks count inside the group."""
    if "Detected mismatch between collectives" not in message:
        return None
    ranks = tuple(int(rank) for rank, _, _ in _FINGERPRINT.findall(message))
    return Parsed(named=ranks)


def gloo_abort(message: str) -> Parsed | None:
    found = _NBYTES.search(message)
    return Parsed(numbers={"got": int(found[1]), "wanted": int(found[2])}) if found else None


def gloo_wait(message: str) -> Parsed | None:
    found = _WAIT.search(message)
    return Parsed(numbers={"limit_ms": int(found[1])}) if found else None


def monitored(message: str) -> Parsed | None:
    """Who failed to pass; who reached it and lost others says nothing about whom."""
    if found := _FAILED_TO_PASS.search(message):
        numbers = {"limit_ms": int(found[2])} if found[2] else {}
        return Parsed("barrier_missed", numbers=numbers, named=ranks_in(found[1]))
    if "monitoredBarrier" in message:
        return Parsed("barrier_lost")
    return None


def store_barrier(message: str) -> Parsed | None:
    """A group that never formed: how many workers had registered of how many."""
    if found := _BARRIER.search(message):
        return Parsed(numbers={"rank": int(found[1]), "world": int(found[2]), "workers": int(found[3])})
    if found := _CLIENTS.search(message):
        return Parsed(numbers={"world": int(found[3]), "workers": int(found[2]), "limit_s": int(found[1])})
    return Parsed() if "Timed out initializing process group" in message else None


CLASSES = (
    LineClass("detail", LOOP, r"Detected mismatch between collectives on ranks", mismatch),
    LineClass("gloo_abort", KILLER, r"op\.preamble\.length <= op\.nbytes", gloo_abort),
    LineClass("gloo_wait", LOOP, r"ms for send|ms for recv", gloo_wait),
    LineClass("monitored", LOOP, r"monitoredBarrier", monitored),
    LineClass(
        "init_timeout",
        KILLER,
        r"Timed out initializing process group|seconds waiting for clients\.",
        store_barrier,
    ),
    LineClass(
        "store_lost",
        LOOP,
        r"Failed to check the .should dump. flag|sendBytes failed|recvValue failed|Did the "
        r"remote server shutdown|"
        r"Dist(Store|Network|Backend)Error|RendezvousConnectionError|RendezvousClosedError|RendezvousTimeoutError",
    ),
)
