"""What launchers and schedulers say: torchrun, SLURM, Ray, submitit, Lightning's signal handler."""

import re

from harness.diagnose.logs.classes import CONTEXT, KILLER, LineClass, Parsed, ranks_in

_EXIT = re.compile(r"failed \(exitcode: (-?\d{1,5})\) local_rank: (\d{1,5}) \(pid: (\d{1,9})\)")
_CLOSING = re.compile(
    r"[Ss]ending process (\d{1,9}) closing signal (SIG\w{1,10})|[Cc]losing process (\d{1,9}) "
    r"via signal (SIG\w{1,10})"
)
_GOT = re.compile(r"Received (?:Signals\.)?(\w{1,12}) death signal|got signal: (\d{1,3})")
_CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP) ([\d._+\w]{1,40})(?: ON ([\w.\[\],-]{1,200}))? CANCELLED(?: AT ([\dT:-]{1,30}))?"
    r"(?: DUE TO ([A-Z ]{1,40}?))?(?= \*\*\*|[^A-Z ]|$)"
)
_SLURM_OOM = re.compile(r"Detected (\d{1,9}) oom[_-]kill event")
_TASK = re.compile(
    r"error: ([\w.-]{1,80}): tasks? ([\d,-]{1,2000}): (Killed|Out Of Memory|Exited with "
    r"exit code (\d{1,4})|Terminated|"
    r"Aborted|Segmentation fault|Bus error|[A-Z][\w ]{1,30})"
)
_RESTART = re.compile(r"restart_count[=:] ?(\d{1,6})")
_LEFT = re.compile(r"(\d{1,6})/(\d{1,6}) attempts left")
_NODE = re.compile(
    r"node (?:with )?(?:node id: \w{1,80} )?(?:and )?(?:address: ?)?([\w.:-]{0,80}).{0,60}?marked dead"
    r"|[Nn]ode ([\w.-]{1,80}) (?:failed|is down|not responding|has failed|became unreachable)"
    r"|[Nn]ode failure on ([\w.-]{1,80})|NODE[_ ]FAIL(?:URE)?"
)
_WELL = re.compile(r"Process (\d{1,9}) exits successfully")


def exit_of(message: str) -> Parsed | None:
    found = _EXIT.search(message)
    if not found:
        return None
    return Parsed(numbers={"code": int(found[1]), "local_rank": int(found[2]), "pid": int(found[3])})


def closing(message: str) -> Parsed | None:
    found = _CLOSING.search(message)
    if not found:
        return None
    return Parsed(numbers={"pid": int(found[1] or found[3])}, words={"signal": found[2] or found[4]})


def death_signal(message: str) -> Parsed | None:
    found = _GOT.search(message)
    return Parsed(words={"signal": found[1] or found[2]}) if found else None


def cancelled(message: str) -> Parsed | None:
    """SLURM's line on the end of a job or step; the reason may be absent, and the line torn."""
    found = _CANCELLED.search(message)
    if not found:
        if "CANCELLED" not in message or "error:" not in message:
            return None
        return Parsed()
    words = {"host": found[2] or "", "when": found[3] or "", "reason": (found[4] or "").strip()}
    return Parsed(words={name: word for name, word in words.items() if word})


def slurm_oom(message: str) -> Parsed | None:
    return Parsed() if _SLURM_OOM.search(message) else None


def task_end(message: str) -> Parsed | None:
    """``srun: error: node: task 3: Killed``."""
    found = _TASK.search(message)
    if not found:
        return None
    numbers = {"code": int(found[4])} if found[4] else {}
    return Parsed(numbers=numbers, words={"host": found[1], "how": found[3]}, named=ranks_in(found[2]))


def preempted(message: str) -> Parsed | None:
    return Parsed(words={"reason": "PREEMPTION"} if "preempt" in message.lower() else {})


def restart(message: str) -> Parsed | None:
    found = _RESTART.search(message)
    if found:
        return Parsed(numbers={"attempt": int(found[1])})
    left = _LEFT.search(message)
    return Parsed(numbers={"left": int(left[1]), "most": int(left[2])} if left else {})


def node_lost(message: str) -> Parsed | None:
    found = _NODE.search(message)
    if not found or "CANCELLED" in message:
        # Who reports that a job was cancelled for a node's failure is alive.
        return None
    host = found[1] or found[2] or found[3]
    return Parsed(words={"host": host} if host else {})


_FIELD = re.compile(r"^(time|host|rank|exitcode|error_file|traceback) {1,8}: ?(.{0,600})")
_INDEX = re.compile(r"\[(\d{1,6})\]:")
_RANK_FIELD = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,5})\)")
_CODE_FIELD = re.compile(r"(-?\d{1,5}) {1,4}\(pid: (\d{1,9})\)")


def block_field(message: str) -> Parsed | None:
    """One line of torchrun's block on a failure: ``rank      : 3 (local_rank: 3)``.

    Source: torch.distributed.elastic.multiprocessing.errors.ChildFailedError.format_msg.
    """
    found = _FIELD.match(message)
    if not found:
        return None
    numbers: dict[str, int] = {}
    if found[1] == "rank":
        if not (rank := _RANK_FIELD.match(found[2])):
            return None
        numbers = {"rank": int(rank[1]), "local_rank": int(rank[2])}
    elif found[1] == "exitcode":
        if not (code := _CODE_FIELD.match(found[2])):
            return None
        numbers = {"code": int(code[1]), "pid": int(code[2])}
    return Parsed(numbers=numbers, words={"field": found[1], "value": found[2].strip()})


def ended_well(message: str) -> Parsed | None:
    """DeepSpeed's launcher on a process that ended with exit code 0."""
    found = _WELL.search(message)
    return Parsed(numbers={"pid": int(found[1])}) if found else None


def block_index(message: str) -> Parsed | None:
    """``[3]:`` before a failure in torchrun's block."""
    found = _INDEX.fullmatch(message)
    return Parsed(numbers={"index": int(found[1])}) if found else None


_SHELL = re.compile(r"\bline \d{1,6}: +(\d{1,9}) (Killed|Segmentation fault|Aborted|Bus error|Terminated)\b")
_RETURNED = re.compile(r"exits with return code = (-?\d{1,5})")
_SIGNALS = {"Killed": -9, "Segmentation fault": -11, "Aborted": -6, "Bus error": -7, "Terminated": -15}


def shell_killed(message: str) -> Parsed | None:
    """A shell's word on a process that a signal ended."""
    found = _SHELL.search(message)
    if not found:
        return None
    return Parsed(numbers={"pid": int(found[1]), "code": _SIGNALS[found[2]]})


def return_code(message: str) -> Parsed | None:
    """DeepSpeed's launcher: the local rank that it prints is the last that it started, not this one's."""
    found = _RETURNED.search(message)
    return Parsed(numbers={"code": int(found[1])}) if found else None


CLASSES = (
    LineClass(
        "shell_killed",
        KILLER,
        r"[0-9] Killed |[0-9] Segmentation fault |[0-9] Aborted |[0-9] Bus error |[0-9] Terminated ",
        shell_killed,
    ),
    LineClass("return_code", KILLER, r"exits with return code = ", return_code),
    # What is found is looked at: with no more than "]:" to look for, all lines would be, at half the speed.
    LineClass("block_index", CONTEXT, r"[0-9]\]:\n|[0-9]\]: \n|[0-9]\]:  [ ]*$", block_index),
    LineClass("exit_ok", CONTEXT, r" exits successfully", ended_well),
    LineClass(
        "block_field",
        CONTEXT,
        r"time      : |host      : |rank      : |exitcode  : |error_file: |traceback : ",
        block_field,
    ),
    LineClass("exit", KILLER, r"failed \(exitcode: ", exit_of),
    LineClass("closing", CONTEXT, r" closing signal SIG| via signal SIG", closing),
    LineClass("death_signal", KILLER, r"death signal|got signal: ", death_signal),
    LineClass("block", CONTEXT, r"first observed failure"),
    LineClass("cancelled", KILLER, r"CANCELLED", cancelled),
    LineClass("slurm_oom", KILLER, r"oom_kill event|oom-kill event", slurm_oom),
    LineClass("task_end", KILLER, r": task [0-9]|: tasks [0-9]", task_end),
    LineClass(
        "preempted",
        KILLER,
        r"this job is preempted|Caught signal SIGUSR|job was preempted|job is being preempted|"
        r"job has been preempted",
        preempted,
    ),
    LineClass(
        "sigterm", KILLER, r"Received SIGTERM: |Received SIGINT: |Received SIGHUP: |Received SIGUSR1: "
    ),
    LineClass(
        "restart",
        CONTEXT,
        r"restart_count=|restart_count: |attempts left; will restart worker group|SLURM_RESTART_COUNT",
        restart,
    ),
    LineClass(
        "node_lost",
        KILLER,
        r"marked dead|NODE[_ ]FAIL|ode failure on |ode [A-Za-z0-9._-]{1,64} (failed|is down|"
        r"not respond|has failed|became unre)",
        node_lost,
    ),
    LineClass("connection_to_node", CONTEXT, r"Lost connection to node|No route to host"),
)
