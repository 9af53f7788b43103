"""What stands around a message: who speaks, where, and when, as launchers, collectors and libraries put it.

Prefixes nest in any order (a cloud export of Ray's output of torchrun's): they are stripped one by one.
"""

import re
from typing import NamedTuple

from harness.diagnose.logs.event import Group, RankFrom

MAX_PREFIXES = 10
MAX_HEAD_CHARS = 600

_TIME_OR_DATE = (
    r"\[?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    r"|(?:\d{4}[-/]\d\d[-/]\d\d[T _])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?Z| ?UTC|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)\]?[,:]?(?=\s|\||$|\[)"
)
_LEVEL = r"(?:\[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|FATAL)\]?)(?=[\s:|-])[\s:|-]{0,3}"
_GLOG = (
    r"\[[IWEF] [\w.]{1,60}\.(?:cpp|cu|h|hpp):\d{1,6}\] ?|\[?[IWEF]\d{3,4} \d\d:\d\d:\d\d(?:\.\d{1,9})? "
    r"{1,8}(?:\d{1,9} )?[\w./<>-]{1,80}:\d{1,6}\] ?"
)
_IN_BRACKETS = {
    "pod": r"\[pod/[\w./-]{1,200}\] ?",
    "rank": r"\[rank(\d{1,7})\]:?",
    "mpi": r"\[\d+,(\d{1,7})\]<std(?:out|err)>:?",
    "lightning": r"\[rank: (\d{1,7})\]",
    # torchrun's label: the role (``default`` unless set) and the LOCAL rank. Other words are the message's.
    "local": r"\[(?:default|trainer|worker|main|train|actor|agent|local_rank_?|proc)(\d{1,5})\]:",
    "glog": _GLOG,
    "time": _TIME_OR_DATE,
    "kernel": r"\[ {0,8}\d{1,9}\.\d{3,9}\] ?",
    "level": _LEVEL,
    "logger": r"\[[\w.]{1,60}(?:\.py)?:\d{1,6}(?::\w{1,60})?\] ?|\[NeMo [A-Z] [^\]]{0,80}\] ?",
    "counter": r"\[\d{1,9}(?:/\d{1,9})?\](?! (?:finished|joined) )(?=\s|\[)",
    # A label that says nothing that is known.
    "unknown": r"\[[A-Za-z][\w-]{0,30}\]: ?",
}
_BRACKETS = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _IN_BRACKETS.items()))
_RANK = re.compile(_IN_BRACKETS["rank"])
_TIME = re.compile(_TIME_OR_DATE)
_WORDS = re.compile("|".join((_GLOG, _LEVEL, _TIME_OR_DATE)))
_BEGIN_WORDS = frozenset("IWEFDCSMTJANO")
"""Levels, and names of days and months."""

_RAY = re.compile(r"\(([\w.:<>*-]+(?: \w+){0,3}) pid=(\d{1,9})(?:, ip=([\w.:-]{3,60}))?\)")
_TASK = re.compile(r"(\d{1,7}): ")
_HOST = re.compile(r"([A-Za-z][\w.-]{0,60}|\d{1,3}(?:\.\d{1,3}){3}): ")
_CLOUD = re.compile(r"[\w-]{1,80}\.([\w-]{1,80}) \[std(?:out|err)\] ?")
_TABLE = re.compile(r"\| *(\S[^|]{0,60}?) *\| ")
_CRI = re.compile(r"std(?:out|err) [FP] ")
_UNIT = re.compile(r"([\w.-]{1,80}) [\w@.:/-]{1,80}\[\d{1,9}\]: ")
_NCCL = re.compile(r"([\w.-]{1,80}):(\d{1,9}):(\d{1,9}) \[(\d{1,3})\] (?=\S{0,40} ?NCCL )")
_SYSLOG_HOST = re.compile(r"([\w.-]{1,80}) kernel: ?")
_GROUP = re.compile(
    r"\[PG (?:ID )?(\w{1,40})(?: PG GUID (\w{1,40}))? ?(?:\(([^)]{0,80})\))? ?Rank (\d{1,7})\]:?"
)
_BARE = re.compile(r"\[Rank (\d{1,7})\]:?")
_MAY_BE_HOST = re.compile(r"[\w.-]{1,161}(: |:\d| \[std| kernel:)")
_REPEATED = re.compile(r"\[repeated (\d{1,6})x across cluster\][^\n]{0,200}$")

_DIGIT = re.compile(r"\d")
_NO_HOST = re.compile(r"Error$|Exception$|Warning$|^(?:srun|slurmstepd|torchrun|bash|python\d?|kernel)$")


class Spoken(NamedTuple):
    """A message and who said it.

    `message_at`: where the message begins in the line; `indent`: blanks of its own. `dropped` counts lines of
    the same kind that Ray left out.
    """

    message: str
    message_at: int
    indent: int = 0
    rank: int | None = None
    rank_from: RankFrom | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str | None = None
    pid: int | None = None
    device_index: int | None = None
    group: Group | None = None
    dropped: int = 0
    stamped: bool = False


def take_apart(text: str) -> Spoken:
    """Strip what stands around a message; a rank in a group's tag inside the message counts, too."""
    found: dict[str, int] = {}
    hosts: list[str] = []
    at, end, stripped = 0, min(len(text), MAX_HEAD_CHARS), 0
    for _ in range(MAX_PREFIXES):
        while at < end and text[at] in " \t":
            at += 1
        length = _strip(text, at, end, found, hosts)
        if not length:
            break
        at += length
        stripped = at
    message = text[at:].strip()
    dropped = 0
    if "[repeated " in message and (repeated := _REPEATED.search(message)):
        dropped = int(repeated[1])
        message = message[: repeated.start()].rstrip()
    rank = found.get("rank")
    if rank is None and "[rank" in text and (glued := _RANK.search(text)):
        # A progress bar was glued in front.
        rank = int(glued[1])
    source = RankFrom.PREFIX if rank is not None else None
    group = _group(message)
    if rank is None:
        if group is not None:
            rank = group.rank
            source = RankFrom.DEFAULT_GROUP if group.is_default else RankFrom.GROUP
        elif "[Rank " in message and (bare := _BARE.search(message[:200])):
            rank, source = int(bare[1]), RankFrom.GROUP
    return Spoken(
        message,
        at,
        at - stripped - (1 if stripped and at > stripped else 0),
        rank,
        source,
        found.get("local_rank"),
        found.get("task"),
        hosts[0] if hosts else None,
        found.get("pid"),
        found.get("device"),
        group,
        dropped,
        "time" in found,
    )


def _strip(text: str, at: int, end: int, found: dict[str, int], hosts: list[str]) -> int:
    """How long the prefix at `at` is, 0 if there is none; what it says goes into `found` and `hosts`."""
    if at >= end:
        return 0
    first = text[at]
    if first == "[":
        return _strip_bracket(text, at, end, found)
    if first == "(" and (ray := _RAY.match(text, at, end)):
        found["pid"] = int(ray[2])
        if ray[3]:
            hosts.append(ray[3])
        return ray.end() - at
    if first == "|" and (cell := _TABLE.match(text, at, end)):
        return 2 if not _TIME.fullmatch(cell[1]) else cell.end() - at
    if first.isdigit():
        if stripped := _TIME.match(text, at, end):
            found["time"] = 1
            return stripped.end() - at
        if "task" not in found and (task := _TASK.match(text, at, end)):
            found["task"] = int(task[1])
            return task.end() - at
    elif first in _BEGIN_WORDS and (stripped := _WORDS.match(text, at, end)):
        found["time"] = 1
        return stripped.end() - at
    if first == "s" and (flag := _CRI.match(text, at, end)):
        return flag.end() - at
    if "time" in found and (unit := _UNIT.match(text, at, end)):
        hosts.append(unit[1])
        return unit.end() - at
    return _strip_host(text, at, end, found, hosts)


def _strip_host(text: str, at: int, end: int, found: dict[str, int], hosts: list[str]) -> int:
    """A host and what tells it from any other word: what stands behind it."""
    may_be = _MAY_BE_HOST.match(text, at, end)
    if not may_be:
        return 0
    behind = may_be[1]
    if behind == ": ":
        host = _HOST.match(text, at, end) if not hosts else None
        if host and _is_host(host[1]):
            hosts.append(host[1])
            return host.end() - at
    elif behind == " [std":
        if cloud := _CLOUD.match(text, at, end):
            hosts.append(cloud[1])
            return cloud.end() - at
    elif behind == " kernel:":
        if kernel := _SYSLOG_HOST.match(text, at, end):
            hosts.append(kernel[1])
            return kernel.end() - at
    elif nccl := _NCCL.match(text, at, end):
        hosts.append(nccl[1])
        found.setdefault("pid", int(nccl[2]))
        found["device"] = int(nccl[4])
        return nccl.end() - at
    return 0


def _strip_bracket(text: str, at: int, end: int, found: dict[str, int]) -> int:
    label = _BRACKETS.match(text, at, end)
    if label is None:
        return 0
    kind = label.lastgroup
    if kind in ("rank", "mpi", "lightning"):
        if kind == "rank" and "rank" in found:
            # torchrun --role rank: its own label says the local rank, torch's behind it the global one.
            found["local_rank"] = found["rank"]
        found["rank"] = int(label[(label.lastindex or 0) + 1])
    elif kind == "local":
        found["local_rank"] = int(label[(label.lastindex or 0) + 1])
    elif kind not in ("pod", "unknown"):
        found["time"] = 1
    return label.end() - at


def _is_host(word: str) -> bool:
    """Whether a word before a colon is a machine: it has a digit, and is no error or tool."""
    return bool(_DIGIT.search(word)) and not _NO_HOST.search(word) and "Error" not in word


def _group(message: str) -> Group | None:
    if message.find("[PG ", 0, 400) < 0 or not (tag := _GROUP.search(message, 0, 500)):
        return None
    uid = tag[2] or tag[1]
    return Group(uid, tag[3] or "", int(tag[4]))
