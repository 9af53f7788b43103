"""An incident's moments, each with the file that says so, from a bundle."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.bundle.layout import Layout
from harness.bundle.reader import BundleReader
from harness.diagnose.signals.columns import StepColumns
from harness.diagnose.signals.read import read_columns
from harness.model.bundle import LauncherRecord
from harness.postmortem.costs import Split
from harness.postmortem.pauses import longest_pause
from harness.postmortem.sources import events_of, page_at


@dataclass(frozen=True)
class Moment:
    """`at`: unix seconds. `source`: a file of the bundle."""

    at: float
    what: str
    source: str


@dataclass(frozen=True)
class Saves:
    """What the records say of checkpoints: median seconds of one, and of the time between two."""

    save_s: float | None
    interval_s: float | None


@dataclass(frozen=True)
class Incident:
    """The first failure of a run and its recovery. `step`: the last that was finished before it."""

    moments: Sequence[Moment]
    split: Split
    step: int | None
    saves: Saves
    failures: int
    lasted_s: float | None
    """From the first step to the last sign of the run."""
    stood_still_s: float | None = None
    """How long a job that went on by itself stood still; 0 if it never did. None of one that did not."""

    @property
    def known_s(self) -> float:
        """How long there was no progress, as far as that is known."""
        return self.split.known_s if self.stood_still_s is None else self.stood_still_s


def incident_of(layout: Layout, culprits: Sequence[int] = ()) -> Incident:
    """Everything that can be measured in a bundle; what cannot is None in the split.

    `culprits`: whose end is told of all that ended together, whichever was seen first.
    """
    records = _records(layout)
    launcher = BundleReader(layout).launcher()
    if len(records) < 2 and launcher is not None and launcher.outcome == "finished":
        return _went_on(layout, records.get(0, ()))
    return _failed(layout, records, launcher, culprits)


def _went_on(layout: Layout, records: Sequence[StepColumns]) -> Incident:
    """A run that came to its end by itself, with or without a pause in it."""
    saves, lasted_s = _saves(records), _lasted(records)
    pause = longest_pause(records)
    if pause is None:
        return Incident((), Split(), None, saves, 0, lasted_s, stood_still_s=0.0)
    moments = [
        Moment(pause.last, f"last finished step: {pause.step}", "signals/attempt_0"),
        Moment(pause.moved, "it went on by itself", "signals/attempt_0"),
    ]
    noticed = [(e.t, "the harness noticed", "events.jsonl") for e in events_of(layout) if e.what == "noticed"]
    page = page_at(layout)
    noticed += [(page, "the page arrived", "page.json")] if page is not None else []
    seen = [Moment(*said) for said in noticed if pause.last <= said[0] <= pause.moved]
    detect = min((m.at for m in seen), default=None)
    return Incident(
        sorted([*moments, *seen], key=lambda moment: moment.at),
        Split(detect=None if detect is None else detect - pause.last),
        pause.step,
        saves,
        1,
        lasted_s,
        stood_still_s=pause.moved - pause.last,
    )


def _failed(
    layout: Layout,
    records: Mapping[int, Sequence[StepColumns]],
    launcher: LauncherRecord | None,
    culprits: Sequence[int],
) -> Incident:
    """A run that ended before its time, or was started again."""
    attempts = sorted(records)
    events = events_of(layout)
    first, second = (records.get(n, ()) for n in (0, 1))
    moments: dict[str, Moment] = {}

    def note(name: str, at: float | None, what: str, source: str) -> None:
        if at is not None:
            moments[name] = Moment(at, what, source)

    step = _slowest(first)
    stopped = max((float(c.t[-1]) for c in first if len(c)), default=None)
    note("last", stopped, f"last finished step: {step}", "signals/attempt_0")
    page = page_at(layout)
    noticed = min((e.t for e in events if e.what == "noticed" and _after(e.t, stopped)), default=None)
    note("noticed", noticed, "the harness noticed", "events.jsonl")
    note("page", page, "the page arrived", "page.json")
    asked = [e.t for e in events if e.what == "dump asked"]
    note("asked", min(asked, default=None), "dumps and stacks were asked for", "events.jsonl")
    dumped = max((p.stat().st_mtime for p in layout.dump_prefix(0).parent.glob("rank_*")), default=None)
    note("dumped", dumped, "the last dump was written", "flight_recorder/attempt_0")
    starts = launcher.attempts if launcher else ()
    restart = starts[1].started if len(starts) > 1 else None
    gone = [e for e in (starts[0].exits if starts else ()) if e.at is not None and not e.cleanup and e.code]
    ended = min(gone, key=lambda e: (e.rank not in culprits, e.at or 0.0), default=None)
    if ended is not None:
        how = ended.signal or f"exit code {ended.code}"
        note("exit", ended.at, f"rank {ended.rank} ended: {how}", "launcher.json")
    note("restart", restart, "all ranks were started again", "launcher.json")
    joined = next((e.t for e in events if e.what == "joined" and restart and e.t >= restart), None)
    note("joined", joined, "all ranks had joined", "events.jsonl")
    begun = min((float(c.t[0]) - _first_time(c) for c in second if len(c)), default=None)
    note("begun", begun, "the first step began again", "signals/attempt_1")
    caught = _caught_up(second, step)
    note("caught", caught, f"step {step} was reached again", "signals/attempt_1")

    exit_at = ended.at if ended is not None else None
    detected = min((t for t in (noticed, page, exit_at) if t is not None), default=None)
    shown = sorted(moments.values(), key=lambda moment: moment.at)
    ended_well = launcher is not None and launcher.outcome == "finished"
    everything = [c for of_attempt in records.values() for c in of_attempt]
    return Incident(
        moments=shown,
        split=_split(stopped, detected, dumped, restart, joined, begun, caught),
        step=step,
        saves=_saves(everything),
        failures=max(len(attempts) - 1, int(detected is not None and not ended_well)),
        lasted_s=_lasted(everything),
    )


def _split(*moments: float | None) -> Split:
    """Parts between moments that follow one another; what happened earlier than its turn took no time.

    A part after an unknown one is unknown too: nobody can say where it began.
    """
    parts: list[float | None] = []
    before, reached = moments[0], moments[0] or 0.0
    for at in moments[1:]:
        parts.append(None if at is None or before is None else max(0.0, at - reached))
        before, reached = at, max(reached, at or 0.0)
    return Split(*parts)


def _records(layout: Layout) -> Mapping[int, Sequence[StepColumns]]:
    found: dict[int, list[StepColumns]] = {}
    for path in sorted(layout.signals.glob("attempt_*/rank_*.jsonl")):
        attempt = int(path.parent.name.rpartition("_")[2])
        columns, _ = read_columns(path, str(path.relative_to(layout.root)), attempt)
        if columns is not None:
            found.setdefault(attempt, []).append(columns)
    return found


def _slowest(columns: Sequence[StepColumns]) -> int | None:
    return min((int(c.step[-1]) for c in columns if len(c)), default=None)


def _after(at: float, since: float | None) -> bool:
    return since is None or at >= since


def _first_time(columns: StepColumns) -> float:
    times = columns.values.get("step_time_s")
    return float(times[0]) if times is not None and times[0] == times[0] else 0.0


def _caught_up(columns: Sequence[StepColumns], step: int | None) -> float | None:
    """When the last rank had finished the step again; None if one never did."""
    if step is None or not columns:
        return None
    reached = [float(c.t[c.step >= step][0]) for c in columns if (c.step >= step).any()]
    return max(reached) if len(reached) == len(columns) else None


def _saves(columns: Sequence[StepColumns]) -> Saves:
    took: list[float] = []
    between: list[float] = []
    for c in columns:
        seconds = c.values.get("ckpt_duration_s")
        if seconds is None:
            continue
        saved = seconds == seconds
        took += [float(s) for s in seconds[saved]]
        times = [float(t) for t in c.t[saved]]
        between += [b - a for a, b in pairwise(times)]
    return Saves(statistics.median(took) if took else None, statistics.median(between) if between else None)


def _lasted(columns: Sequence[StepColumns]) -> float | None:
    if not columns:
        return None
    return max(float(c.t[-1]) for c in columns) - min(float(c.t[0]) for c in columns)
