"""What NCCL and torch's watchdog say: timeouts, progress, dumps, heartbeats, errors, the desync report."""

import re

from harness.diagnose.logs.classes import CONTEXT, KILLER, LineClass, Parsed, ranks_in

UNKNOWN_NUMEL = 2**64 - 1
MAX_SEQ = 10**15

_WORK = re.compile(r"WorkNCCL\((?P<fields>(?:[^()]|\([^()]{0,40}\)){0,600})")
_SEQ = re.compile(r"\bSeqNum=(\d{1,18})")
_OP = re.compile(r"\bOpType=(\w{1,40})")
_SHAPE = re.compile(r"\bTensorShape=\[([\d, ]{0,200})\]")
_IN = re.compile(r"\bNumelIn=(\d{1,20})")
_OUT = re.compile(r"\bNumelOut=(\d{1,20})")
_LIMIT = re.compile(r"\bTimeout\(ms\)=(\d{1,15})")
_RAN = re.compile(r"\bran for (\d{1,15}) ?(?:milliseconds|ms)")

_AT = re.compile(r"(?:at NCCL work:|at work:|at work sequence id:)\s*(-?\d{1,18})")
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work:\s*(-?\d{1,20})")
_COMPLETED = re.compile(r"[Ll]ast completed (?:NCCL )?work:\s*(-?\d{1,20})")
_ACTIVE = re.compile(r"active collectives:\s*(\d{1,9})")

_SIGNAL_OF = re.compile(r"from +rank (\d{1,7})")
_PATH = re.compile(r"dumping nccl trace to (\S{1,300})")
_STUCK = re.compile(r"watchdog got stuck for (\d{1,9}) seconds")

_TERMINATED = re.compile(r"terminated with exception:\s*(.{0,2000})")
_REMOTE = re.compile(r"nccl(\w{1,30}?Error)\b")
_COMM = re.compile(
    r"\brank (\d{1,7}) nranks (\d{1,7})(?: cudaDev (\d{1,3}))?(?: nvmlDev \d{1,3})?(?: "
    r"busId ([0-9a-fA-F:.]{1,20}))?"
)
_PEER = re.compile(
    r"[Cc]onnection closed by (?:remote peer (\S{1,80}?)<\d{1,6}>|localRank (\d{1,5})|remote peer (\S{1,80}))"
)

_JOINED_NOT = re.compile(
    r"\[([\d, ]{1,20000})\] finished collective #(\d{1,12}), but didn't join collective #(\d{1,12})"
)
_NOT_FINISHED = re.compile(r"\[([\d, ]{1,20000})\] joined but didn't finish collective #(\d{1,12})")
_DESYNC_AT = re.compile(r"Timeout at collective: (\w{1,40}), #(\d{1,12})")


def work_timeout(message: str) -> Parsed | None:
    """``Watchdog caught collective operation timeout: WorkNCCL(...) ran for D milliseconds``."""
    if "ollective operation timeout" not in message:
        return None
    begin = message.find("ollective operation timeout")
    work = _WORK.search(message, begin)
    fields = work["fields"] if work else message[begin : begin + 700]
    numbers: dict[str, int] = {}
    for name, pattern in (("seq", _SEQ), ("in", _IN), ("out", _OUT), ("limit_ms", _LIMIT)):
        found = pattern.search(fields)
        if found and int(found[1]) != UNKNOWN_NUMEL and not _cut(found, fields, work):
            numbers[name] = int(found[1])
    if ran := _RAN.search(message, begin):
        numbers["ran_ms"] = int(ran[1])
    words: dict[str, str] = {}
    if (op := _OP.search(fields)) and not _cut(op, fields, work):
        words["op"] = op[1]
    if shape := _SHAPE.search(fields):
        words["shape"] = shape[1].replace(" ", "")
    return Parsed(numbers=numbers, words=words)


def _cut(found: re.Match[str], fields: str, work: re.Match[str] | None) -> bool:
    """Whether a field stands at the end of a record that was not closed: it may have been longer."""
    closed = work is not None and work.string[work.end() : work.end() + 1] == ")"
    return not closed and found.end() == len(fields)


def progress(message: str) -> Parsed | None:
    """Last enqueued and last completed work, in one of four wordings; -1 is none yet.

    Completed above enqueued is garbage and dropped, as are numbers that the end of the line may have cut.
    """
    enqueued, completed = _ENQUEUED.search(message), _COMPLETED.search(message)
    at = _AT.search(message)
    numbers: dict[str, int] = {}
    for name, found in (("work", at), ("enqueued", enqueued), ("completed", completed)):
        if found and found.end() < len(message) and -1 <= int(found[1]) < MAX_SEQ:
            numbers[name] = int(found[1])
    if numbers.get("completed", -1) > numbers.get("enqueued", MAX_SEQ):
        del numbers["enqueued"], numbers["completed"]
    active = _ACTIVE.search(message)
    if active:
        numbers["active"] = int(active[1])
    return Parsed(numbers=numbers) if numbers else None


def dump_signal(message: str) -> Parsed | None:
    """Who asked for dumps: this rank, or another; the rank named there is only the first to report."""
    if "on this rank to signal dumping" in message:
        stuck = "no heartbeat" in message
        return Parsed("dump_first", words={"why": "no heartbeat"} if stuck else {})
    named = _SIGNAL_OF.search(message)
    if "this local rank" in message:
        return Parsed("dump_first")
    return Parsed("dump_observed", named=(int(named[1]),) if named else ())


def dump_path(message: str) -> Parsed | None:
    found = _PATH.search(message)
    return Parsed(words={"path": found[1]} if found else {})


def heartbeat(message: str) -> Parsed | None:
    stuck = _STUCK.search(message)
    return Parsed(numbers={"stuck_s": int(stuck[1])} if stuck else {})


def terminated(message: str) -> Parsed | None:
    """The exception that ended the watchdog: a timeout, a CUDA error or an NCCL error."""
    found = _TERMINATED.search(message)
    return Parsed(words={"exception": found[1]} if found and found[1] else {})


def nccl_error(message: str) -> Parsed | None:
    found = _REMOTE.search(message)
    return Parsed(words={"error": f"nccl{found[1]}"} if found else {})


def communicator(message: str) -> Parsed | None:
    """NCCL's line at a communicator's start: the bus id joins a card to a rank inside that communicator."""
    found = _COMM.search(message)
    if found is None or "Abort" in message:
        return None
    words = {"bus": found[4].lower()} if found[4] else {}
    numbers = {"rank": int(found[1]), "nranks": int(found[2])}
    if found[3]:
        numbers["device"] = int(found[3])
    return Parsed(numbers=numbers, words=words)


def peer_closed(message: str) -> Parsed | None:
    """A connection that a peer closed names a host or an address, not a rank."""
    found = _PEER.search(message)
    return Parsed(words={"peer": found[1] or found[3]} if found and (found[1] or found[3]) else {})


def desync(message: str) -> Parsed | None:
    """A line of the desync report: who finished, who joined; the numbers count from 1."""
    if found := _JOINED_NOT.search(message):
        numbers = {"finished": int(found[2]), "missed": int(found[3])}
        return Parsed("desync_absent", numbers=numbers, named=ranks_in(found[1]))
    if found := _NOT_FINISHED.search(message):
        return Parsed("desync_joined", numbers={"seq": int(found[2])}, named=ranks_in(found[1]))
    if found := _DESYNC_AT.search(message):
        return Parsed("desync_at", numbers={"seq": int(found[2])}, words={"op": found[1]})
    return None


CLASSES = (
    LineClass("watchdog_timeout", KILLER, r"aught collective operation timeout", work_timeout),
    LineClass(
        "progress",
        KILLER,
        r"ast enqueued NCCL work|ast enqueued work|ast completed NCCL work|ast completed work",
        progress,
    ),
    LineClass(
        "dump_signal",
        CONTEXT,
        r"on this rank to signal dumping|Observed flight recorder dump signal|Received a dump signal",
        dump_signal,
    ),
    LineClass(
        "dumping",
        CONTEXT,
        r"dumping nccl trace to|Flight Recorder trace successfully|Finished flight recorder",
        dump_path,
    ),
    LineClass("heartbeat", KILLER, r"Heartbeat monitor timed out|watchdog got stuck for", heartbeat),
    LineClass("gil", KILLER, r"Could not acquire GIL"),
    LineClass("watchdog_ended", KILLER, r"watchdog thread terminated with exception", terminated),
    LineClass(
        "taking_down",
        KILLER,
        r"taking the entire process down|Some NCCL operations have failed or timed out",
    ),
    LineClass(
        "nccl_error",
        KILLER,
        r"NCCL error|ncclRemoteError|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|"
        r"async exception",
        nccl_error,
    ),
    LineClass("nccl_warn", CONTEXT, r"NCCL WARN"),
    LineClass("communicator", CONTEXT, r" nranks ", communicator),
    LineClass(
        "peer_closed",
        KILLER,
        r"onnection closed by peer|onnection closed by remote peer|onnection closed by localRank|"
        r"onnection reset by peer \[|Got completion from peer",
        peer_closed,
    ),
    LineClass(
        "desync",
        KILLER,
        r"finished collective #|joined but didn't finish|Timeout at collective: ",
        desync,
    ),
    LineClass("active", CONTEXT, r"active collectives: ", progress),
    LineClass(
        "ras",
        CONTEXT,
        r"launched up to operation|ncclras",
    ),
    LineClass(
        "pasted",
        CONTEXT,
        r"Culprit rank|Not all ranks joining collective|missing ranks: \{|Collective sequence number: ",
    ),
)
