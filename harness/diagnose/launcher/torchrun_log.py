"""torchrun's own words: the block on failures that it prints at the end, and the error files of ranks."""

import datetime
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from harness.diagnose.logs.events import LogEvent, exception_kind
from harness.model.bundle import Attempt, LauncherRecord, RankExit

MAX_BYTES = 16 << 20

_FAILURE = re.compile(
    r"^\s*time\s+: (?P<time>\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)\s*\n"
    r"\s*host\s+: (?P<host>\S*)\s*\n"
    r"\s*rank\s+: (?P<rank>\d+) \(local_rank: (?P<local>\d+)\)\s*\n"
    r"\s*exitcode\s*: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)",
    re.MULTILINE,
)
"""Source: torch.distributed.elastic.multiprocessing.errors.ChildFailedError.format_msg."""

_BLOCK = re.compile(r"^=+\n.*FAILED\s*$", re.MULTILINE)
_STOPPED = re.compile(r"SignalException: (Process \d+ got signal: \d+)")


def read_torchrun_log(path: Path, logs: Path) -> LauncherRecord | None:
    """How ranks ended by torchrun's log and error files, or None where neither says anything.

    `logs` is torchrun's log folder. Only the last block counts. Times are whole seconds of local time;
    equal ones are a tie. Ranks that torchrun stopped itself are not listed as failures of their own.
    """
    text = _text(path)
    starts = [found.start() for found in _BLOCK.finditer(text)]
    listed = {exit_.rank: exit_ for exit_ in _failures(text[starts[-1] :] if starts else "")}
    for exit_ in _error_files(logs):
        listed.setdefault(exit_.rank, exit_)
    stopped = _STOPPED.search(text)
    if not listed and not stopped:
        return None
    exits = tuple(sorted(listed.values(), key=lambda e: (e.at or 0.0, e.rank)))
    attempt = Attempt(
        _last_attempt(logs),
        min((e.at for e in exits if e.at), default=0.0),
        {e.rank: e.pid for e in exits},
        exits,
    )
    outcome = "stopped" if stopped else "failed"
    return LauncherRecord((attempt,), outcome, stopped[1] if stopped else None)


_END_OF_TRACEBACK = re.compile(r"^\s*\[\d+\]:|^[-=]{20,}", re.MULTILINE)


def block_events(path: Path, root: Path) -> tuple[LogEvent, ...]:
    """The exceptions that the last block quotes: it is all that is left where ranks' own logs are lost."""
    text = _text(path)
    starts = [found.start() for found in _BLOCK.finditer(text)]
    events: list[LogEvent] = []
    for found in _FAILURE.finditer(text, starts[-1]) if starts else ():
        end = _END_OF_TRACEBACK.search(text, found.end())
        section = text[found.end() : end.start() if end else len(text)]
        _, quoted, trace = section.partition("traceback : Traceback")
        lines = [(i, line.strip()) for i, line in enumerate(trace.splitlines()) if line.strip()]
        if quoted and lines:
            before = text.count("\n", 0, found.end()) + section[: -len(trace)].count("\n")
            at, said = lines[-1]
            kind = exception_kind(said)
            events.append(
                LogEvent(int(found["rank"]), kind, str(path.relative_to(root)), before + at + 1, said[:300])
            )
    return tuple(events)


def _failures(block: str) -> Iterator[RankExit]:
    for found in _FAILURE.finditer(block):
        code = int(found["code"])
        name = signal.Signals(-code).name if code < 0 and -code in set(signal.Signals) else None
        at = datetime.datetime.strptime(found["time"], "%Y-%m-%d_%H:%M:%S").timestamp()
        cleanup = name == "SIGTERM"
        yield RankExit(int(found["rank"]), int(found["pid"]), code, name, at, cleanup)


def _error_files(logs: Path) -> Iterator[RankExit]:
    """Ranks that left an error file: each ended by an exception. One agent: local rank is rank."""
    for path in sorted(logs.glob(f"*/attempt_{_last_attempt(logs)}/*/error.json")):
        if not path.parent.name.isdigit():
            continue
        try:
            message = json.loads(path.read_bytes())["message"]
            at = float(message["extraInfo"]["timestamp"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        yield RankExit(int(path.parent.name), 0, 1, None, at)


def _last_attempt(logs: Path) -> int:
    numbers = [p.name.removeprefix("attempt_") for p in logs.glob("*/attempt_*")]
    return max((int(n) for n in numbers if n.isdigit()), default=0)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""
