"""What stands around a message: who speaks, where, and when, as launchers, collectors and libraries put it.

Prefixes nest in any order (a cloud export of Ray's output of torchrun's): they are stripped one by one.
"""

import re
from dataclasses import dataclass

from harness.diagnose.logs.event import Group, RankFrom

MAX_PREFIXES = 10
MAX_HEAD_CHARS = 600

_RANK = re.compile(r"\[rank(\d{1,7})\]:?")
_MPI = re.compile(r"\[\d+,(\d{1,7})\]<std(?:out|err)>:?")
_LIGHTNING = re.compile(r"\[rank: (\d{1,7})\]")
_LOCAL = re.compile(r"\[(?:default|trainer|worker|main|train|actor|agent|local_rank_?|proc)(\d{1,5})\]:")
"""torchrun's label: the role (``default`` unless set) and the LOCAL rank. Other words are the message's."""

_RAY = re.compile(r"\(([\w.:<>*-]+(?: \w+){0,3}) pid=(\d{1,9})(?:, ip=([\w.:-]{3,60}))?\)")
_TASK = re.compile(r"(\d{1,7}): ")
_HOST = re.compile(r"([A-Za-z][\w.-]{0,60}|\d{1,3}(?:\.\d{1,3}){3}): ")
_CLOUD = re.compile(r"[\w-]{1,80}\.([\w-]{1,80}) \[std(?:out|err)\] ?")
_TABLE = re.compile(r"\| *(\S[^|]{0,60}?) *\| ")
_UNKNOWN = re.compile(r"\[[A-Za-z][\w-]{0,30}\]: ?")
_COUNTER = re.compile(r"\[\d{1,9}(?:/\d{1,9})?\](?! (?:finished|joined) )(?=\s|\[)")
_CRI = re.compile(r"std(?:out|err) [FP] ")
_POD = re.compile(r"\[pod/[\w./-]{1,200}\] ?")
_UNIT = re.compile(r"([\w.-]{1,80}) [\w@.:/-]{1,80}\[\d{1,9}\]: ")
_LEVEL = re.compile(r"(?:\[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|FATAL)\]?)(?=[\s:|-])[\s:|-]{0,3}")
_LOGGER = re.compile(r"\[[\w.]{1,60}(?:\.py)?:\d{1,6}(?::\w{1,60})?\] ?|\[NeMo [A-Z] [^\]]{0,80}\] ?")
_GLOG = re.compile(
    r"\[[IWEF] [\w.]{1,60}\.(?:cpp|cu|h|hpp):\d{1,6}\] ?|\[?[IWEF]\d{3,4} \d\d:\d\d:\d\d(?:\.\d{1,9})? "
    r"{1,8}(?:\d{1,9} )?[\w./<>-]{1,80}:\d{1,6}\] ?"
)
_NCCL = re.compile(r"([\w.-]{1,80}):(\d{1,9}):(\d{1,9}) \[(\d{1,3})\] (?=\S{0,40} ?NCCL )")
_KERNEL = re.compile(r"\[ {0,8}\d{1,9}\.\d{3,9}\] ?")
_SYSLOG_HOST = re.compile(r"([\w.-]{1,80}) kernel: ?")
_TIME = re.compile(
    r"\[?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    r"|(?:\d{4}[-/]\d\d[-/]\d\d[T _])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?Z| ?UTC|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)\]?[,:]?(?=\s|\||$|\[)"
)
_GROUP = re.compile(
    r"\[PG (?:ID )?(\w{1,40})(?: PG GUID (\w{1,40}))? ?(?:\(([^)]{0,80})\))? ?Rank (\d{1,7})\]:?"
)
_BARE = re.compile(r"\[Rank (\d{1,7})\]:?")
_MAY_BE_HOST = re.compile(r"[\w.-]{1,161}(?:: |:\d| \[std| kernel:)")
_REPEATED = re.compile(r"\[repeated (\d{1,6})x across cluster\][^\n]{0,200}$")

_NO_HOST = re.compile(r"Error$|Exception$|Warning$|^(?:srun|slurmstepd|torchrun|bash|python\d?|kernel)$")


@dataclass(frozen=True)
class Spoken:
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
    found: dict[str, int | str] = {}
    at, end, stripped = 0, min(len(text), MAX_HEAD_CHARS), 0
    for _ in range(MAX_PREFIXES):
        while at < end and text[at] in " \t":
            at += 1
        length = _strip(text, at, end, found)
        if not length:
            break
        at += length
        stripped = at
    message = text[at:].strip()
    dropped = 0
    if "[repeated " in message and (repeated := _REPEATED.search(message)):
        dropped = int(repeated[1])
        message = message[: repeated.start()].rstrip()
    rank = _int(found.get("rank"))
    if rank is None and "[rank" in text and (glued := _RANK.search(text)):
        # A progress bar was glued in front.
        rank = int(glued[1])
    source = RankFrom.PREFIX if rank is not None else None
    group = _group(message)
    if group is not None and rank is None:
        rank = group.rank
        source = RankFrom.DEFAULT_GROUP if group.is_default else RankFrom.GROUP
    elif group is None and rank is None and (bare := _BARE.search(message[:200])):
        rank, source = int(bare[1]), RankFrom.GROUP
    return Spoken(
        message=message,
        message_at=at,
        indent=at - stripped - (1 if stripped and at > stripped else 0),
        rank=rank,
        rank_from=source,
        local_rank=_int(found.get("local_rank")),
        task=_int(found.get("task")),
        host=str(found["host"]) if "host" in found else None,
        pid=_int(found.get("pid")),
        device_index=_int(found.get("device")),
        group=group,
        dropped=dropped,
        stamped="time" in found,
    )


def _int(value: int | str | None) -> int | None:
    return value if isinstance(value, int) else None


def _strip(text: str, at: int, end: int, found: dict[str, int | str]) -> int:
    """How long the prefix at `at` is, 0 if there is none; what it says goes into `found`."""
    if at >= end:
        return 0
    first = text[at]
    if first == "[":
        return _strip_bracket(text, at, end, found)
    if first == "(" and (ray := _RAY.match(text, at, end)):
        found["pid"] = int(ray[2])
        if ray[3]:
            found.setdefault("host", ray[3])
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
    elif first in "IWEFDCSMTJANO":
        # Levels, and names of days and months.
        for pattern in (_GLOG, _LEVEL, _TIME):
            if stripped := pattern.match(text, at, end):
                found["time"] = 1
                return stripped.end() - at
    if first == "s" and (flag := _CRI.match(text, at, end)):
        return flag.end() - at
    if "time" in found and (unit := _UNIT.match(text, at, end)):
        found.setdefault("host", unit[1])
        return unit.end() - at
    if not _MAY_BE_HOST.match(text, at, end):
        return 0
    if nccl := _NCCL.match(text, at, end):
        found.setdefault("host", nccl[1])
        found.setdefault("pid", int(nccl[2]))
        found["device"] = int(nccl[4])
        return nccl.end() - at
    if cloud := _CLOUD.match(text, at, end):
        found.setdefault("host", cloud[1])
        return cloud.end() - at
    if kernel := _SYSLOG_HOST.match(text, at, end):
        found.setdefault("host", kernel[1])
        return kernel.end() - at
    host = _HOST.match(text, at, end)
    if host and "host" not in found and _is_host(host[1]):
        found["host"] = host[1]
        return host.end() - at
    return 0


def _strip_bracket(text: str, at: int, end: int, found: dict[str, int | str]) -> int:
    if pod := _POD.match(text, at, end):
        return pod.end() - at
    for pattern in (_RANK, _MPI, _LIGHTNING):
        if stated := pattern.match(text, at, end):
            if pattern is _RANK and "rank" in found:
                # torchrun --role rank: its own label says the local rank, torch's behind it the global one.
                found["local_rank"] = found["rank"]
            found["rank"] = int(stated[1])
            return stated.end() - at
    if local := _LOCAL.match(text, at, end):
        found["local_rank"] = int(local[1])
        return local.end() - at
    for pattern in (_GLOG, _TIME, _KERNEL, _LEVEL, _LOGGER, _COUNTER):
        if stripped := pattern.match(text, at, end):
            found["time"] = 1
            return stripped.end() - at
    # A label that says nothing that is known.
    unknown = _UNKNOWN.match(text, at, end)
    return unknown.end() - at if unknown else 0


def _is_host(word: str) -> bool:
    """Whether a word before a colon is a machine: it has a digit, and is no error or tool."""
    return any(c.isdigit() for c in word) and not _NO_HOST.search(word) and "Error" not in word


def _group(message: str) -> Group | None:
    if "[PG " not in message[:400] or not (tag := _GROUP.search(message, 0, 500)):
        return None
    uid = tag[2] or tag[1]
    return Group(uid, tag[3] or "", int(tag[4]))
