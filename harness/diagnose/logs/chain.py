"""NCCL's watchdog from its timeout to the files of all ranks: which links held, who was first, how long.

The chain: a rank's watchdog sees a collective time out; it signals its own monitor thread and, through the
store, everybody's; each rank's monitor thread writes the recorder into that rank's file. Source of the
wording: ProcessGroupNCCL.cpp; each of it is in libtorch_cuda.so of torch 2.10 to 2.13. Half of it is said
at level INFO only
(``TORCH_CPP_LOG_LEVEL=INFO``), so no link rests on such a line alone.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.diagnose.flight.load import load_dump
from harness.diagnose.logs.nccl_lines import dump_path, dump_signal, work_timeout
from harness.diagnose.logs.stamps import read_stamp
from harness.model.chain import Link, WatchdogChain
from harness.model.ranks import format_ranks

MAX_LINE_CHARS = 4096
_WANTED = (
    "ollective operation timeout",
    "to signal dumping",
    "Observed flight recorder dump signal",
    "Received a dump signal",
    "dumping nccl trace to",
    "preparing to dump debug info",
    "race successfully dumped",
    "Finished flight recorder",
)


@dataclass
class RankWords:
    """What one rank said of the chain, each at its first time: unix seconds, or None where it has none."""

    timeout: float | None = None
    timed_out: bool = False
    late_ms: int | None = None
    first: float | None = None
    signalled: bool = False
    observed: float | None = None
    has_observed: bool = False
    monitor: float | None = None
    has_monitor: bool = False
    named: int | None = None
    path: str | None = None


@dataclass
class ChainFiles:
    """A rank's dump: when it was written, unix seconds, and why it cannot be read, if so."""

    written: float
    damage: str | None = None


@dataclass
class _Clock:
    """Turns times without a year and a zone into unix seconds, as this machine wrote them."""

    near: float

    def unix(self, text: str) -> float | None:
        stamp = read_stamp(text)
        if stamp is None or not stamp.dated:
            return None
        if stamp.zone:
            return stamp.seconds
        parts, year = time.gmtime(stamp.seconds), time.localtime(self.near).tm_year
        years = (parts.tm_year,) if stamp.has_year else (year - 1, year, year + 1)
        moments = [time.mktime((y, *parts[1:6], 0, 0, -1)) + stamp.seconds % 1 for y in years]
        return min(moments, key=lambda at: abs(at - self.near))


def read_words(lines: Iterable[str], near: float) -> RankWords:
    """What one rank's own log says of the chain. `near`: about when it was written, unix seconds."""
    words, clock = RankWords(), _Clock(near)
    for raw in lines:
        line = raw[:MAX_LINE_CHARS]
        if not any(wanted in line for wanted in _WANTED):
            continue
        at = clock.unix(line)
        timeout = work_timeout(line)
        if timeout is not None and not words.timed_out:
            words.timed_out, words.timeout = True, at
            ran, limit = timeout.numbers.get("ran_ms"), timeout.numbers.get("limit_ms")
            words.late_ms = ran - limit if ran is not None and limit is not None else None
        elif "Received a dump signal" in line:
            _monitor(words, at)
            named = dump_signal(line)
            words.named = named.named[0] if named and named.named else words.named
        elif "Observed flight recorder dump signal" in line:
            words.observed, words.has_observed = words.observed or at, True
        elif "to signal dumping" in line:
            words.first, words.signalled = words.first or at, True
        elif timeout is None:
            _monitor(words, at)
            said = dump_path(line)
            words.path = (said.words.get("path") if said else None) or words.path
    return words


def _monitor(words: RankWords, at: float | None) -> None:
    words.has_monitor = True
    words.monitor = words.monitor or at


def read_chain(logs: Mapping[int, Path], dumps: Mapping[int, Path], world_size: int) -> WatchdogChain:
    """Check each link of one attempt. `logs`, `dumps`: files by rank; any may be missing."""
    words: dict[int, RankWords] = {}
    for rank, path in logs.items():
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                words[rank] = read_words(file, path.stat().st_mtime)
        except OSError:
            continue
    files: dict[int, ChainFiles] = {}
    for rank, path in dumps.items():
        try:
            files[rank] = ChainFiles(path.stat().st_mtime, _damage(path))
        except OSError:
            continue
    return check_chain(words, files, world_size)


def _damage(path: Path) -> str | None:
    try:
        found = load_dump(path.read_bytes())
    except Exception as error:  # whatever is wrong with it, it is no dump
        return str(error) or type(error).__name__
    return None if found.get("entries") else "no entries"


def check_chain(
    words: Mapping[int, RankWords], files: Mapping[int, ChainFiles], world_size: int
) -> WatchdogChain:
    """Each link: whether it held, in which ranks, and how long after the one before."""
    everybody = set(range(world_size))
    timed_out = {r: w for r, w in words.items() if w.timed_out}
    initiators = {r for r, w in words.items() if w.signalled}
    observers = {r for r, w in words.items() if w.has_observed and not w.signalled}
    told = initiators | observers
    monitors = {r for r, w in words.items() if w.has_monitor} | {
        r for r in told if r in files and files[r].damage is None
    }
    good = {r for r, f in files.items() if f.damage is None}
    first = _first(words, initiators)
    began = _earliest(w.timeout for w in timed_out.values())
    signalled = _earliest(words[r].first for r in initiators)
    spread = _latest([*(words[r].observed for r in observers), *(words[r].first for r in initiators)])
    monitored = _latest(words[r].monitor for r in monitors if r in words)
    written = _latest(files[r].written for r in good)
    links = {
        "timeout": Link(
            bool(timed_out),
            _timeout_text(timed_out),
            format_ranks(timed_out),
            took_s=_late_s(timed_out),
        ),
        "first_signal": Link(
            bool(initiators),
            "nobody signalled" if first is None else f"rank {first} signalled first",
            format_ranks(initiators),
            took_s=_between(began, signalled),
        ),
        "store_signal": _of_all("told of the signal", told, everybody, _between(signalled, spread)),
        "monitor_thread": _of_all("asked their recorder", monitors, everybody, _between(spread, monitored)),
        "files": _of_files(files, good, everybody, _between(signalled, written)),
    }
    return WatchdogChain(links, first, format_ranks(initiators), format_ranks(observers))


def _first(words: Mapping[int, RankWords], initiators: set[int]) -> int | None:
    """Who signalled first by the clock; without one, whom the others name, if they agree."""
    timed = {r: at for r in initiators if (at := words[r].first) is not None}
    if len(timed) == len(initiators) and timed:
        return min(timed, key=lambda r: (timed[r], r))
    named = {w.named for w in words.values() if w.named is not None}
    return named.pop() if len(named) == 1 else next(iter(initiators)) if len(initiators) == 1 else None


def _timeout_text(timed_out: Mapping[int, RankWords]) -> str:
    if not timed_out:
        return "no rank's watchdog saw a collective time out"
    return f"the watchdogs of ranks {format_ranks(timed_out)} saw a collective time out"


def _late_s(timed_out: Mapping[int, RankWords]) -> float | None:
    """How long after the limit the first watchdog noticed."""
    late = [w.late_ms for w in timed_out.values() if w.late_ms is not None]
    return min(late) / 1000 if late else None


def _of_all(what: str, ranks: set[int], everybody: set[int], took_s: float | None) -> Link:
    missing = everybody - ranks
    says = f"all {len(everybody)} ranks {what}" if not missing else f"rank {format_ranks(missing)} not {what}"
    return Link(not missing, says, format_ranks(ranks), format_ranks(missing), took_s)


def _of_files(
    files: Mapping[int, ChainFiles], good: set[int], everybody: set[int], took_s: float | None
) -> Link:
    missing = everybody - good
    damaged = [f"rank {r}: {f.damage}" for r, f in sorted(files.items()) if f.damage is not None]
    says = f"a file of each of {len(everybody)} ranks"
    if missing:
        says = f"no readable file of rank {format_ranks(missing)}" + (
            f" ({'; '.join(damaged[:2])})" if damaged else ""
        )
    return Link(not missing, says, format_ranks(good), format_ranks(missing), took_s)


def _earliest(times: Iterable[float | None]) -> float | None:
    return min((t for t in times if t is not None), default=None)


def _latest(times: Iterable[float | None]) -> float | None:
    return max((t for t in times if t is not None), default=None)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, round(end - start, 3))
