"""Reads one log in the order of its lines: who speaks, what is said, and what belongs together.

Lines that go on with another (a wrapped record, the body of a traceback, torchrun's block) are put together
here, since only here their neighbours are known. Ranks are taken as the lines state them; which global rank
a local rank, a task or a process is, the census decides over all files.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from harness.diagnose.logs.catalogue import BY_NAME, TAG
from harness.diagnose.logs.classes import KILLER, LOOP, MAX_MESSAGE_CHARS, LineClass, Parsed
from harness.diagnose.logs.code_lines import EXCEPTION, TRACEBACK
from harness.diagnose.logs.event import Event, RankFrom
from harness.diagnose.logs.jsonlines import unwrapped
from harness.diagnose.logs.prefix import Spoken, take_apart
from harness.diagnose.logs.stamps import Stamp, read_stamp
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import Line
from harness.diagnose.texts.patterns import HEAD, SAMPLE, TAIL

KEPT_ALIKE = 6
"""Of one speaker's lines of one class and wording so many are kept, and the last; the others are counted."""

CONTINUES_LINES = 3
"""A line without a prefix takes the rank of one that stands so close before it (LOG-FORMATS)."""

FOLLOWED_LINES = 4
"""A traceback is followed through so many lines of others; an exception's line is found without that."""

OWN_TIME_CHARS = 40
"""A time that stands so close to the beginning of a message is the line's own."""

FIRST_LINES, SAMPLED_EACH, STAMPED_EACH = 5, 8, 16
MAX_SAMPLE_CHARS = 200
"""Of lines that nothing is in, the first of a file are read whole, and of each eighth only who speaks."""

MAX_TRACEBACK_LINES = 400
MAX_WRAPS = 3
MAX_TEXT_CHARS = 500
MAX_REPORT_CHARS = 4000
MAX_HEAD_LINES = 200

_INNER = re.compile(r"\[rank\d{1,7}\]:")
_HOLE = re.compile(r"\0{8,}")
_ZEROS = "\0" * 8
_DIGITS = re.compile(r"\d+")
_OF_RANK = re.compile(r"Traceback \(most recent call last\): \(RANK (\d{1,7})\)")
_FRAME = re.compile(r'File "([^"]{1,300})", line (\d{1,7}), in (\S{1,100})')
_CHAINED = (
    "The above exception was the direct cause",
    "During handling of the above exception",
)
_LIBRARY = ("/torch/", "site-packages", "dist-packages", "/lib/python", "<frozen", "<string>")
_ALWAYS_KEPT = frozenset(
    ("watchdog_timeout", "progress", "exit", "exit_ok", "closing", "block_exit", "task_end", "xid")
)
_NOISY = frozenset(("step", "connection", "retry", "nccl_warn", "active"))
_WHOLE = frozenset(
    (
        "detail",
        "monitored",
        "exception",
        "loader_death",
        "task_end",
        "cuda_error",
        "cancelled",
        "restart",
        "exit_ok",
    )
)
"""Classes whose lines mean another thing where their end is missing."""

OF_OTHERS = frozenset(("gloo_wait", "store_lost", "nccl_error", "peer_closed", "monitored", "detail"))
MAX_SAID_CHARS = 2000


class Speaker(NamedTuple):
    """Who wrote a line, as far as the line and its file say."""

    rank: int | None = None
    rank_from: RankFrom | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str | None = None
    pid: int | None = None


@dataclass
class Seen:
    """Where a speaker was heard. Numbers of lines, from 1."""

    first: int
    last: int
    lines: int = 1


@dataclass
class FileLog:
    """What one file says. Events have no times yet and only stated ranks; they are in the order of lines.

    `stamps`: times of lines that were looked at. `restarts`: attempts, and the lines at which they begin.
    `rank_fields`: ranks were read from a logger's JSON.
    """

    file: TextFile
    head: list[tuple[int, str]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    stamps: list[tuple[int, Stamp]] = field(default_factory=list)
    speakers: dict[Speaker, Seen] = field(default_factory=dict)
    last_line: int = 0
    attempts: int = 1
    restarts: list[tuple[int, int]] = field(default_factory=list)
    rank_fields: bool = False
    complaints: list[str] = field(default_factory=list)


@dataclass
class _Traceback:
    line: int
    frame: str = ""
    site: str = ""
    chained: bool = False
    ignored: bool = False
    indent: int = 0
    other: int | None = None


class _Kept(NamedTuple):
    """What was said in a line; it is made an event, and its time is read, once it is known to stay."""

    what: str
    tier: int
    line: int
    spoken: Spoken
    speaker: Speaker
    parsed: Parsed
    attempt: int
    after_step: int | None
    front: str


@dataclass
class _Raised:
    """An exception whose message may go on; `words` are those of its event."""

    line: int
    speaker: Speaker
    words: dict[str, str]


@dataclass
class _Pending:
    """A record that its line did not end."""

    spoken: Spoken
    line: int
    wraps: int = 0


@dataclass
class _Block:
    """torchrun's block of one agent: the fields of the failure that is being listed."""

    line: int = 0
    host: str | None = None
    time: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    root: bool = False
    listed: int | None = None
    """The rank whose traceback follows."""

    index: int = 0
    last_field: str = ""
    confused: bool = False
    words: list[dict[str, str]] = field(default_factory=list)
    """Those of the events of its failures."""


class LogReader:
    """Feeds on the lines of one file. While `follow` is set it wants each next line, whatever it holds."""

    def __init__(self, file: TextFile) -> None:
        self.log = FileLog(file)
        self._number = 0
        self._attempt = file.attempt or 0
        self._tracebacks: dict[Speaker, _Traceback] = {}
        self._pending: _Pending | None = None
        self._raised: _Raised | None = None
        self._blocks: dict[Speaker, _Block] = {}
        self._follow_to = 0
        self._last: tuple[int, Speaker] | None = None
        self._said: dict[tuple[object, ...], list[_Kept]] = {}
        self._counts: dict[tuple[object, ...], int] = {}
        self._steps: dict[Speaker, int] = {}
        self._members: dict[tuple[int, int], int] = {}
        self._broken = False
        self._step_seen: int | None = None
        self._ignored = -1
        self._stamped: set[int] = set()
        self._front = ""
        self._body = 0

    @property
    def follow(self) -> bool:
        """Whether the next line is wanted."""
        if self._pending is not None or self._number < self._follow_to:
            return True
        return bool(self._tracebacks) and self._number - self._body < FOLLOWED_LINES

    def feed(self, line: Line) -> None:
        """Look at one line."""
        self._number = self.log.last_line = line.number
        text = line.text
        several = self._several(line) if text.startswith("{") or _ZEROS in text else ()
        text = (several[0] if several else text)[:MAX_MESSAGE_CHARS]
        if HEAD in line.tags and len(self.log.head) < MAX_HEAD_LINES:
            self.log.head.append((line.number, text[:400]))
        classes = _classes_of(line.tags)
        if self._is_sample(line, text, classes):
            return
        if len(several) < 2:
            self._row(line, text, classes, whole=line.whole)
            return
        torn = _ZEROS in line.text
        for number, row in enumerate(several, 1):
            own = [found for found in classes if found.is_in(row)]
            whole = line.whole if number == len(several) else not torn
            self._row(line, row[:MAX_MESSAGE_CHARS], own, whole=whole)

    def _several(self, line: Line) -> Sequence[str]:
        """The lines that a logger's object holds, or that a hole of zeros tore apart."""
        said = unwrapped(line.text)
        if said is not None:
            self.log.rank_fields |= said.states_rank
            return said.rows
        return [row for row in _HOLE.split(line.text) if row] or [""]

    def _row(self, line: Line, row: str, classes: Sequence[LineClass], *, whole: bool) -> None:
        pieces = tuple(_pieces(row)) if row.count("[rank") > 1 else (row,)
        for number, piece in enumerate(pieces, 1):
            # What another writer cut into, and the end of a file that was cut off, may say half of a thing.
            self._piece(line, piece, classes, whole=whole and number == len(pieces))

    def _is_sample(self, line: Line, text: str, classes: Sequence[LineClass]) -> bool:
        """Whether a line only shows who speaks in a file: of such lines few are looked at closely."""
        if classes or self.follow or TAIL in line.tags:
            return False
        if line.number <= FIRST_LINES:
            return False
        if SAMPLE in line.tags or line.number % SAMPLED_EACH == 0:
            spoken = take_apart(text[:MAX_SAMPLE_CHARS])
            self._speaker(spoken)
            if line.number % STAMPED_EACH == 0:
                self._stamp(line.number, _front(text, spoken), spoken.message_at)
        return True

    def finish(self) -> FileLog:
        """What the file said, once it has been read."""
        self._end_pending()
        kept: list[tuple[_Kept, int]] = []
        for key, said in self._said.items():
            repeats = max(self._counts[key] - len(said), 0)
            kept += [(one, 0) for one in said[:-1]]
            kept.append((said[-1], repeats))
        kept.sort(key=lambda pair: pair[0].line)
        for one, _ in kept:
            self._stamp(one.line, one.front, one.spoken.message_at)
        self.log.stamps.sort(key=lambda pair: pair[0])
        self.log.events = [self._event(one, repeats) for one, repeats in kept]
        self.log.attempts = self._attempt + 1
        return self.log

    def _piece(self, line: Line, text: str, classes: Sequence[LineClass], *, whole: bool) -> None:
        spoken = take_apart(text)
        if line.number == 1 and spoken.task is not None and spoken.rank is None and spoken.message_at < 10:
            # The beginning of a file may be cut inside a label.
            spoken = take_apart(text[spoken.message_at :])
        speaker = self._speaker(spoken)
        self._front = _front(text, spoken)
        if line.number <= FIRST_LINES or TAIL in line.tags:
            self._stamp(line.number, self._front, spoken.message_at)
        if self._pending is not None and not self._continue(spoken, text):
            self._end_pending()
        self._tail(speaker, spoken, classes)
        if self._in_traceback(line, spoken, speaker, whole=whole):
            return
        for line_class in classes:
            parsed = line_class.parse(spoken.message) if whole or line_class.what not in _WHOLE else None
            ended = line_class.what == "exception" and self._raised and self._raised.line == line.number
            if parsed is not None and not ended:
                self._take(line, line_class, parsed, spoken, speaker)

    def _speaker(self, spoken: Spoken) -> Speaker:
        """Who speaks; a line without any prefix goes on with one shortly before it."""
        file = self.log.file
        rank, source = spoken.rank, spoken.rank_from
        if file.rank is not None and (rank is None or source is RankFrom.GROUP):
            rank, source = file.rank, RankFrom.FILE
        local = spoken.local_rank if spoken.local_rank is not None else file.local_rank
        speaker = Speaker(rank, source, local, spoken.task, spoken.host, spoken.pid)
        bare = rank is None and local is None and spoken.task is None and spoken.pid is None
        if bare and self._last and self._number - self._last[0] <= CONTINUES_LINES and spoken.host is None:
            before = self._last[1]
            if before.rank is not None and not spoken.message.startswith(TRACEBACK) and not self._tracebacks:
                return Speaker(before.rank, RankFrom.CONTEXT, before.local_rank, before.task, before.host)
        elif not bare:
            self._last = self._number, speaker
        seen = self.log.speakers.get(speaker)
        if seen is None:
            self.log.speakers[speaker] = Seen(self._number, self._number)
        else:
            seen.last = self._number
            seen.lines += 1
        return speaker

    def _stamp(self, number: int, front: str, message_at: int) -> None:
        if number in self._stamped:
            return
        self._stamped.add(number)
        if (stamp := read_stamp(front, message_at + OWN_TIME_CHARS)) is not None:
            self.log.stamps.append((number, stamp))

    def _take(
        self, line: Line, line_class: LineClass, parsed: Parsed, spoken: Spoken, speaker: Speaker
    ) -> None:
        what = parsed.what or line_class.what
        if what == "block_field":
            self._block_field(parsed, spoken, speaker)
            return
        if what == "traceback" and spoken.message.startswith("traceback "):
            # A field of torchrun's block, which is read as that.
            return
        if what == "traceback" and (quoted := _OF_RANK.search(spoken.message)):
            # torch.distributed.checkpoint prints another rank's traceback.
            self._tracebacks[speaker] = _Traceback(line.number, other=int(quoted[1]))
            self._body = line.number
            return
        if what == "block_index":
            self._block_index(parsed.numbers["index"], speaker)
            return
        if what == "block":
            if "first observed failure" in spoken.message:
                block = self._blocks.setdefault(speaker, _Block())
                block.root, block.rank = True, None
            return
        if what == "traceback":
            ignored = self._ignored == line.number - 1
            self._tracebacks[speaker] = _Traceback(line.number, ignored=ignored)
            self._body = line.number
            return
        if what == "ignored":
            self._ignored = line.number
            return
        if what == "exception" and spoken.indent > 0:
            return
        if what == "watchdog_timeout" and "before timing out" not in spoken.message:
            self._pending = _Pending(spoken, line.number)
            return
        if what == "step":
            self._step(parsed, spoken, speaker)
        if what == "restart":
            self._restarted(parsed)
        if what == "communicator":
            self._communicator(parsed, speaker)
        if what in ("watchdog_timeout", "exit", "cancelled", "watchdog_ended"):
            self._broken = True
        if what == "exception":
            words = dict(parsed.words)
            parsed = Parsed(parsed.what, parsed.numbers, words, parsed.named, parsed.tier)
            self._raised = _Raised(line.number, speaker, words)
            self._follow_to = line.number + CONTINUES_LINES
        self._emit(what, line_class.tier, line.number, spoken, speaker, parsed)

    def _emit(
        self, what: str, tier: int, number: int, spoken: Spoken, speaker: Speaker, parsed: Parsed
    ) -> None:
        tier = tier if parsed.tier is None else parsed.tier
        wording = parsed.words.get("form", "") if what in _NOISY else _DIGITS.sub("#", spoken.message[:120])
        exact = tuple(sorted(parsed.numbers.items())) if what in _ALWAYS_KEPT else ()
        group = spoken.group.uid if spoken.group else None
        most = MAX_REPORT_CHARS if what == "detail" else MAX_TEXT_CHARS
        if len(spoken.message) > most:
            spoken = _with_message(spoken, spoken.message[:most])
        after_step = self._step_seen if tier in (KILLER, LOOP) else None
        said = _Kept(what, tier, number, spoken, speaker, parsed, self._attempt, after_step, self._front)
        key = (what, speaker, self._attempt, group, wording, exact, parsed.named[:4])
        kept = self._said.setdefault(key, [])
        self._counts[key] = self._counts.get(key, 0) + 1
        room = 1 if exact else 2 if what == "step" else KEPT_ALIKE
        if len(kept) < room:
            kept.append(said)
        elif not exact:
            kept[-1] = said

    def _event(self, said: _Kept, repeats: int) -> Event:
        spoken, speaker, parsed = said.spoken, said.speaker, said.parsed
        return Event(
            what=said.what,
            tier=said.tier,
            file=self.log.file.name,
            line=said.line,
            text=spoken.message,
            attempt=said.attempt,
            rank=speaker.rank,
            rank_from=speaker.rank_from,
            group=spoken.group,
            host=speaker.host,
            local_rank=speaker.local_rank,
            pid=speaker.pid,
            task=speaker.task,
            named=parsed.named,
            numbers=parsed.numbers,
            words=parsed.words,
            after_step=said.after_step,
            repeats=repeats,
            dropped=spoken.dropped,
        )

    def _step(self, parsed: Parsed, spoken: Spoken, speaker: Speaker) -> None:
        """A step that goes back behind a failure begins another attempt."""
        now, before = parsed.numbers["step"], self._steps.get(speaker)
        counts_on = parsed.words.get("form") != "plain"
        if before is not None and now < before and self._broken and counts_on:
            self._new_attempt()
        self._steps[speaker] = now
        if counts_on:
            self._step_seen = now

    def _communicator(self, parsed: Parsed, speaker: Speaker) -> None:
        """A process that takes another's place behind a failure begins another attempt."""
        member = (parsed.numbers["nranks"], parsed.numbers["rank"])
        before = self._members.get(member)
        replaced = before is not None and speaker.pid is not None and before != speaker.pid
        if replaced and self._broken:
            self._new_attempt()
        if speaker.pid is not None:
            self._members[member] = speaker.pid

    def _restarted(self, parsed: Parsed) -> None:
        if (stated := parsed.numbers.get("attempt")) is not None:
            if stated > self._attempt:
                self._attempt = stated - 1
                self._new_attempt()
            self._broken = False
        elif "left" in parsed.numbers:
            self._new_attempt()

    def _new_attempt(self) -> None:
        self._attempt += 1
        self.log.restarts.append((self._attempt, self._number))
        self._broken = False
        self._steps.clear()
        self._step_seen = None
        self._members.clear()

    def _continue(self, spoken: Spoken, text: str) -> bool:
        """Put a wrapped record together; True while it is not at its end."""
        pending = self._pending
        assert pending is not None
        own = spoken.rank is not None and spoken.message_at > 0 and spoken.rank != pending.spoken.rank
        if own or pending.wraps >= MAX_WRAPS or spoken.message.startswith(("[PG ", "[Rank ", TRACEBACK)):
            return False
        joined = f"{pending.spoken.message}{spoken.message}"[:MAX_MESSAGE_CHARS]
        pending.spoken = _with_message(pending.spoken, joined)
        pending.wraps += 1
        return "before timing out" not in joined

    def _end_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        line_class = BY_NAME["watchdog_timeout"]
        parsed = line_class.parse(pending.spoken.message)
        if parsed is not None:
            self._broken = True
            speaker = self._speaker(pending.spoken)
            self._emit("watchdog_timeout", line_class.tier, pending.line, pending.spoken, speaker, parsed)

    def _tail(self, speaker: Speaker, spoken: Spoken, classes: Sequence[LineClass]) -> None:
        """What an exception says goes on in its speaker's next lines: a message of several, or a wrap."""
        raised = self._raised
        if raised is None or self._number == raised.line:
            return
        plain = not classes or all(c.what in _NOISY or c.what in OF_OTHERS for c in classes)
        if raised.speaker != speaker or self._number - raised.line > CONTINUES_LINES or spoken.stamped:
            self._raised = None if self._number - raised.line > CONTINUES_LINES else raised
        elif plain and len(raised.words["said"]) < MAX_SAID_CHARS:
            raised.words["said"] += spoken.message[:MAX_TEXT_CHARS]

    def _in_traceback(self, line: Line, spoken: Spoken, speaker: Speaker, *, whole: bool) -> bool:
        """Whether a line is the body or the end of a traceback that this speaker has begun."""
        open_ = self._tracebacks.get(speaker)
        if open_ is None:
            if self._tracebacks:
                self._tracebacks = {
                    s: t for s, t in self._tracebacks.items() if line.number - t.line <= MAX_TRACEBACK_LINES
                }
            return False
        message = spoken.message
        self._body = line.number
        if TRACEBACK in message or not message:
            return not message
        if message.startswith(_CHAINED):
            open_.chained = True
            return True
        if frame := _FRAME.match(message):
            _note_frame(open_, frame)
            return True
        if spoken.indent > open_.indent or message.startswith(("^", "~")):
            return True
        del self._tracebacks[speaker]
        found = EXCEPTION.match(message) if whole else None
        if not found:
            return False
        words = {"type": found["type"], "said": (found["said"] or "")[:600], "traced": "yes"}
        if open_.frame:
            words["site"] = open_.frame
        if open_.site:
            words["in"] = open_.site
        if open_.chained:
            words["chained"] = "yes"
        if open_.ignored:
            words["ignored"] = "yes"
        parsed = Parsed(words=words)
        if open_.other is not None:
            speaker = Speaker(open_.other, RankFrom.NAMED, None, None, None)
        tier = BY_NAME["exception"].tier
        block = self._blocks.get(speaker)
        if block is not None and block.listed is not None and speaker.rank is None:
            speaker = Speaker(block.listed, RankFrom.BLOCK, None, speaker.task, speaker.host)
            words["block"] = "yes"
        for line_class in _classes_of(line.tags):
            if line_class.what in _TRACED and (own := line_class.parse(message)) is not None:
                named = Parsed(own.what, own.numbers, {**words, **own.words}, own.named)
                self._emit(own.what or line_class.what, line_class.tier, line.number, spoken, speaker, named)
                return True
        self._emit("exception", tier, line.number, spoken, speaker, parsed)
        self._raised = _Raised(line.number, speaker, words)
        self._broken = True
        self._follow_to = line.number + CONTINUES_LINES
        return False

    def _block_index(self, index: int, speaker: Speaker) -> None:
        """The number of a failure in the block: one that is left out means that lines are missing."""
        block = self._blocks.setdefault(speaker, _Block())
        gap = index > 1 and block.index != index - 1
        block.rank, block.index, block.last_field = None, index, ""
        if gap:
            for words in block.words:
                words["damaged"] = "yes"

    def _block_field(self, parsed: Parsed, spoken: Spoken, speaker: Speaker) -> None:
        """A field of torchrun's block; with the exit code a failure is complete."""
        block = self._blocks.setdefault(speaker, _Block())
        name, value = parsed.words["field"], parsed.words["value"]
        near = self._number - block.line <= 2
        if near and block.last_field == name:
            # Two agents' blocks in one another: which line is whose, nothing tells.
            block.confused = True
            for words in block.words:
                words["damaged"] = "yes"
        block.line, block.last_field = self._number, name
        if name not in ("rank", "exitcode"):
            block.rank = None
        if name == "time":
            block.time, block.host = value, None
            self._follow_to = self._number + 6
        elif name == "host" and near:
            block.host = value.split()[0] if value else None
        elif name == "rank" and near:
            block.rank, block.local_rank = parsed.numbers["rank"], parsed.numbers["local_rank"]
        elif name == "exitcode" and near and block.rank is not None:
            self._broken = True
            words = {"time": block.time or ""}
            if block.root:
                words["root"] = "yes"
            if block.confused:
                words["damaged"] = "yes"
            block.words.append(words)
            sure = not block.confused
            failed = Speaker(
                block.rank if sure else None,
                RankFrom.BLOCK if sure else None,
                block.local_rank,
                None,
                block.host,
                parsed.numbers["pid"],
            )
            self._emit(
                "block_exit", 1, self._number, spoken, failed, Parsed(numbers=parsed.numbers, words=words)
            )
            block.listed, block.root = block.rank, False
        elif name == "traceback" and near and TRACEBACK in value:
            self._tracebacks[speaker] = _Traceback(self._number, indent=spoken.indent)


_TRACED = frozenset(
    ("device_oom", "cuda_error", "device_assert", "loader_death", "ais_loader", "detail", "monitored")
)


@lru_cache(maxsize=4096)
def _classes_of(tags: frozenset[str]) -> tuple[LineClass, ...]:
    """The classes whose patterns a line matched."""
    return tuple(BY_NAME[tag[len(TAG) :]] for tag in sorted(tags) if tag.startswith(TAG))


def _pieces(text: str) -> Iterator[str]:
    """A line that holds what several ranks wrote is several."""
    starts = [found.start() for found in _INNER.finditer(text)]
    if len(starts) < 2:
        yield text
        return
    first = starts[0] if starts[0] > 120 else 0
    bounds = [first, *starts[1:], len(text)]
    if first:
        yield text[:first]
    for begin, end in pairwise(bounds):
        yield text[begin:end]


def _front(text: str, spoken: Spoken) -> str:
    return text[: spoken.message_at + 2 * OWN_TIME_CHARS]


def _note_frame(open_: _Traceback, frame: re.Match[str]) -> None:
    """The innermost frame outside of libraries, and whether data or a checkpoint was at work."""
    path, number, function = frame.groups()
    if "checkpoint" in path or "checkpoint" in function or function in ("save_state_dict", "torch_save"):
        open_.site = "checkpoint"
    elif "torch/utils/data" in path or "dataset" in path.rsplit("/", 1)[-1] or "dataloader" in path:
        open_.site = open_.site or "dataloader"
    if not any(part in path for part in _LIBRARY):
        open_.frame = f"{function} {path.rsplit('/', 1)[-1]}:{number}"


def _with_message(spoken: Spoken, message: str) -> Spoken:
    return spoken._replace(message=message)
