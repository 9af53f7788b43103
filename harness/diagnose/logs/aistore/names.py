"""Which files are logs of AIStore daemons, and what their names say."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

_NAME = re.compile(
    r"ais(target|proxy|node)\.([A-Za-z0-9][\w-]{0,80})\.(INFO|WARNING|ERROR)"
    r"(?:\.(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d))?(?![A-Za-z0-9])"
)
_MENTION = re.compile(r"(?<![a-z0-9])ais-?(target|proxy)(?:-(\d{1,5}))?(?![a-z0-9])", re.ASCII)
HEADER = re.compile(
    r"^(Started up|Rotated) at (\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d), host ([\w.-]{1,80})", re.ASCII
)
"""The first line of each file: why it begins, when, and on which host (in Kubernetes the daemon's name)."""

STAMP = re.compile(
    r"^(?:\d{4}-\d\d-\d\dT\S{1,25} )?([IWE]) (?:(\d{4})-(\d\d)-(\d\d) )?"
    r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))? ",
    re.ASCII,
)
_HINT = re.compile(
    r"shared-dm|x-get-batch|getbatch|\bais[-:/]|aisnode|=============|\berr\.[a-z.]{1,30}\.n\b"
    r"|\{[a-z]{2,10}\.[a-z.]{1,40}:\d|(?:target|proxy)stats|\bx-[a-z]{2,20}\["
)
MAX_LINE_CHARS = 4 << 10
_HEAD_LINES = 60
_MIN_STAMPED = 3


@dataclass(frozen=True)
class NameFacts:
    """What a path says: role (proxy, target, unknown), id, level; `start`: month, day, second of day."""

    role: str = "unknown"
    id: str | None = None
    level: str = "INFO"
    start: tuple[int, int, int] | None = None


def is_daemon_log(name: str, head: str) -> bool:
    """Whether a file is a daemon's log: by its name, or, renamed, by its first lines (some KiB of text)."""
    if _NAME.search(PurePosixPath(name).name):
        return True
    lines = [line[:MAX_LINE_CHARS] for line in head.splitlines()[:_HEAD_LINES] if line.strip()]
    if not lines:
        return False
    stamped = sum(STAMP.match(line) is not None for line in lines)
    if HEADER.match(lines[0]) and (stamped or len(lines) == 1):
        return True
    # The last line of a head is cut, and multi-line messages have no stamp.
    return (
        stamped >= _MIN_STAMPED
        and stamped * 2 >= len(lines)
        and any(STAMP.match(line) and _HINT.search(line) for line in lines)
    )


def name_facts(name: str) -> NameFacts:
    """Read role, id and start out of a path; the file's own name decides, then the folders, inmost first."""
    for part in reversed(PurePosixPath(name).parts):
        if found := _NAME.search(part):
            role = found[1] if found[1] != "node" else _role(found[2])
            return NameFacts(role, found[2], "INFO" if found[3] == "INFO" else "ERROR", _start(found))
    for part in reversed(PurePosixPath(name).parts):
        if found := _MENTION.search(part):
            number = found[2]
            return NameFacts(found[1], f"ais-{found[1]}-{number}" if number else None)
    return NameFacts()


def host_facts(host: str) -> NameFacts:
    """What the host in a file's first line says."""
    return NameFacts(_role(host), host)


def _role(text: str) -> str:
    found = _MENTION.search(text)
    return found[1] if found else "unknown"


def _start(found: re.Match[str]) -> tuple[int, int, int] | None:
    if found[4] is None:
        return None
    month, day, hour, minute, second = (int(found[i]) for i in range(4, 9))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    return month, day, hour * 3600 + minute * 60 + second
