"""A diagnosis as Markdown, to paste into an incident's channel: the answer, then five parts."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby

from harness.model.diagnosis import (
    Citation,
    Diagnosis,
    Job,
    Location,
    RankCensus,
    RankState,
    TierCount,
    TimelineEntry,
)
from harness.model.kinds import Kind
from harness.model.ranks import format_ranks, parse_ranks

MAX_MOMENTS = 30
"""Rows of the timeline; of a longer one the middle is left out."""
MAX_STATES = 20
MAX_CITED_LINES = 40
MAX_LISTED = 20
MAX_CHARS = 400
"""Of one text that comes from evidence."""

_SIDES = ("storage", "client", "training", "hardware", "scheduler")
_UNKNOWN = "not known"

_NAMES_OR_MARKS = re.compile(r"(?<=[A-Za-z0-9])(_+)(?=[A-Za-z0-9])|([\\`*_\[\]|~$])")
_BLOCK_START = re.compile(r"#|=|[+-](?=[\s-]|$)|\d{1,9}[.)](?=\s|$)")
_LINKED = re.compile(r"://|@|www\.|#\d", re.IGNORECASE)
"""What renderers make a link or a mention of, without being asked to."""
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of writing: a line may not show other than it reads."""


def diagnosis_markdown(diagnosis: Diagnosis) -> str:
    """The report: sentence, verdict, then job, timeline, root cause chain, key files, recommendations.

    CommonMark with tables. Nothing that comes from evidence can end a table's cell, open HTML or become a
    link: such text is escaped, or stands in code. Equal diagnoses give equal bytes.
    """
    blocks = [
        f"**{prose(diagnosis.summary) or diagnosis.kind.value}**",
        _bullets(list(_verdict(diagnosis))),
        "## 1. Job",
        _bullets(list(_job(diagnosis.job, diagnosis.ranks))),
        "## 2. Timeline",
        *_timeline(diagnosis.timeline, diagnosis.clocks),
        "## 3. Root cause chain",
        *_chain(diagnosis),
        "## 4. Key files",
        *_key_files(diagnosis),
        *_states(diagnosis),
        *_tiers(diagnosis.tiers),
        "## 5. Recommendations",
        *_recommendations(diagnosis),
    ]
    return "\n\n".join(blocks) + "\n"


def prose(text: str, in_table: bool = False) -> str:
    """One line of text as Markdown that shows it as it is; words that would become links stand in code."""
    plain = _one_line(text)
    start = "\\" if _BLOCK_START.match(plain) else ""
    words = [code(word, in_table) if _LINKED.search(word) else _escaped(word) for word in plain.split(" ")]
    if start and words[0][:1].isdigit():
        return re.sub(r"^(\d+)", r"\1\\", " ".join(words), count=1)
    return ("" if words[0].startswith("`") else start) + " ".join(words)


def code(text: str, in_table: bool = False) -> str:
    """One line of text as a code span; in a table a pipe is escaped even there."""
    plain = _one_line(text)
    if not plain:
        return ""
    if in_table:
        # Renderers disagree on a backslash before an escaped pipe: keep them apart.
        plain = plain.replace("\\|", "\\ |").replace("|", "\\|")
    fence = "`" * (_longest_run(plain) + 1)
    pad = " " if plain[0] == "`" or plain[-1] == "`" else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def _one_line(text: str, limit: int = MAX_CHARS) -> str:
    """`text` without line breaks, control characters and halves of characters, cut to `limit`."""
    kept = "".join(map(_harmless, text[: 4 * limit]))
    plain = " ".join(kept.split())
    return plain if len(plain) <= limit else f"{plain[: limit - 3].rstrip()}..."


def _harmless(char: str) -> str:
    if char.isspace():
        return " "
    kind = unicodedata.category(char)
    if kind == "Cs":
        return "\ufffd"
    return "" if kind == "Cc" or char in _TURNS else char


def _escaped(word: str) -> str:
    """Marks of Markdown and HTML made harmless; an underscore inside a name is none."""
    shown = _NAMES_OR_MARKS.sub(lambda m: m[1] or f"\\{m[2]}", word)
    shown = re.sub(r"&(?=[#A-Za-z0-9])", "&amp;", shown)
    return re.sub(r"(?<!-)>", "&gt;", shown.replace("<", "&lt;"))


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shortened(lines: Sequence[str], limit: int) -> list[str]:
    """At most `limit` of them, and how many were left out."""
    left_out = len(lines) - limit
    return list(lines) if left_out <= 0 else [*lines[:limit], f"{left_out} more are left out here"]


def _place(file: str | None, line: int | None, record: int | None = None, in_table: bool = False) -> str:
    if file is None:
        return ""
    at = f":{line}" if line is not None else ""
    # The number stands at the end: a long name is cut in front of it.
    name = _one_line(file, MAX_CHARS - len(at))
    return code(f"{name}{at}", in_table) + (f" record {record}" if record is not None else "")


def _verdict(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"kind: {code(diagnosis.kind.value)}"
    yield f"category: {code(diagnosis.category.value)}"
    yield f"confidence: {diagnosis.confidence.value}"
    accused = diagnosis.culprits or diagnosis.suspects
    if accused:
        word = "culprits" if diagnosis.culprits else "suspects (not convicted)"
        yield f"{word}: {_ranks(accused)}"
        homes = [f"rank {rank}: {home}" for rank in accused if (home := _home(diagnosis.at.get(rank)))]
        yield from _shortened(homes, MAX_LISTED)
    elif diagnosis.kind is not Kind.HEALTHY:
        yield "culprits: nobody is accused"
    where = diagnosis.where
    if where.hosts and not diagnosis.at:
        yield f"hosts: {', '.join(_shortened([code(host) for host in where.hosts], MAX_LISTED))}"
    words = (
        ("group", where.group),
        ("operation", where.op),
        ("site", where.site),
        ("how", where.how),
        ("signal", where.signal),
    )
    for label, text in words:
        if text:
            yield f"{label}: {prose(text)}"
    numbers = (("parted at seq", where.seq), ("stuck at seq", where.stuck_seq), ("step", where.step))
    for label, number in numbers:
        if number is not None:
            yield f"{label}: {number}"
    if where.recovered is not None:
        yield f"recovered after: {where.recovered:.0f} s"


def _home(at: Location | None) -> str:
    if at is None:
        return ""
    host = f"host {code(at.host)}" if at.host else ""
    device = f"device {code(at.device)}" if at.device else ""
    local = f"local rank {at.local_rank}" if at.local_rank is not None else ""
    pid = f"pid {at.pid}" if at.pid is not None else ""
    return ", ".join(filter(None, (host, device, local, pid)))


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranks(ranks)}"


def _job(job: Job, ranks: RankCensus) -> Iterator[str]:
    yield f"framework: {prose(job.framework or _UNKNOWN)}"
    yield f"ranks expected: {_UNKNOWN if ranks.expected is None else ranks.expected}"
    yield f"ranks with evidence: {prose(ranks.with_evidence) or 'none'}"
    missing = prose(ranks.missing)
    yield f"ranks missing: {missing or ('none' if ranks.expected is not None else _UNKNOWN)}"
    yield f"nodes: {_UNKNOWN if job.nodes is None else job.nodes}"
    yield f"started: {_UNKNOWN if job.started is None else f'{_utc(job.started)} UTC'}"
    yield f"resumed from: {prose(job.resumed_from or _UNKNOWN)}"
    yield f"last step: {_UNKNOWN if job.last_step is None else job.last_step}"
    if job.state:
        yield f"state: {prose(job.state)}"
    for said in job.stated:
        yield f"from {_place(said.file, said.line)}: {prose(said.says)}"


def _utc(at: float) -> str:
    """A moment to the millisecond. Damaged evidence may hold any number."""
    try:
        return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return _UNKNOWN


def _timeline(timeline: Sequence[TimelineEntry], clocks: Sequence[str]) -> list[str]:
    notes = ["Clocks:", _bullets(_shortened([prose(note) for note in clocks], MAX_LISTED))] if clocks else []
    if not timeline:
        return ["No moment has a known time.", *notes]
    rows = [
        (
            _utc(entry.at),
            "" if entry.rank is None else str(entry.rank),
            prose(entry.what, in_table=True),
            _place(entry.file, entry.line, in_table=True),
        )
        for entry in timeline
    ]
    left_out = len(rows) - MAX_MOMENTS
    if left_out > 0:
        half = MAX_MOMENTS // 2
        gap = ("...", "", f"*{left_out} moments are left out here*", "")
        rows = [*rows[:half], gap, *rows[-half:]]
    return [_table(("time (UTC)", "rank", "what", "where"), rows), *notes]


def _chain(diagnosis: Diagnosis) -> list[str]:
    blocks = [_links(diagnosis)]
    if diagnosis.ruled_out:
        ruled_out = [f"{code(r.kind.value)}: {prose(r.because)}" for r in diagnosis.ruled_out]
        blocks += ["Ruled out:", _bullets(_shortened(ruled_out, MAX_LISTED))]
    if diagnosis.revised:
        revised = [
            f"was: {prose(r.was)}; now: {prose(r.now)}; because {prose(r.because)}" for r in diagnosis.revised
        ]
        blocks += ["Revised on the way:", _bullets(_shortened(revised, MAX_LISTED))]
    return blocks


def _links(diagnosis: Diagnosis) -> str:
    """The chain's entries, numbered; what stands behind an arrow is an effect, never a cause."""
    if not diagnosis.chain:
        return "The evidence shows no chain of causes."
    lines = []
    for number, entry in enumerate(diagnosis.chain, 1):
        text = entry.strip()
        if text.startswith("->"):
            said = f"-> effect: {prose(text[2:])}"
        elif number == 1 and diagnosis.kind is not Kind.INCONCLUSIVE:
            said = f"cause: {prose(text)}"
        else:
            said = prose(text)
        lines.append(f"{number}. {said}")
    return "\n".join(lines)


def _key_files(diagnosis: Diagnosis) -> list[str]:
    cited = diagnosis.evidence[:MAX_CITED_LINES]
    uncited = [file for file in diagnosis.key_files if file not in {c.file for c in diagnosis.evidence}]
    blocks = []
    in_files = sorted((c for c in cited if c.file is not None), key=_Order(diagnosis.key_files))
    for file, claims in groupby(in_files, key=lambda c: c.file or ""):
        blocks += [f"{code(file)}:", _bullets([_claim(c) for c in claims])]
    if uncited:
        blocks += ["Also of use:", _bullets(_shortened([code(file) for file in uncited], MAX_LISTED))]
    elsewhere = [_claim(c) for c in cited if c.file is None]
    if elsewhere:
        blocks += ["Not from a file:", _bullets(elsewhere)]
    if len(diagnosis.evidence) > len(cited):
        blocks.append(f"{len(diagnosis.evidence) - len(cited)} more citations are left out here.")
    return blocks or ["No file is cited."]


class _Order:
    """Citations file by file: key files as they are listed, the others behind them in order of appearance."""

    def __init__(self, key_files: Sequence[str]) -> None:
        self._places = {file: place for place, file in enumerate(dict.fromkeys(key_files))}

    def __call__(self, cited: Citation) -> int:
        return self._places.setdefault(cited.file or "", len(self._places))


def _claim(cited: Citation) -> str:
    place = _place(cited.file, cited.line, cited.record)
    rank = f" (rank {cited.rank})" if cited.rank is not None else ""
    return f"{place or code(cited.source)}{rank}: {prose(cited.says)}"


def _states(diagnosis: Diagnosis) -> list[str]:
    """How every set of like ranks stood: the accused first, then the smallest sets."""
    states = diagnosis.ranks.states
    if not states:
        return []
    accused = {*diagnosis.culprits, *diagnosis.suspects}

    def outlying(state: RankState) -> tuple[bool, int]:
        ranks = _parsed(state.ranks)
        return accused.isdisjoint(ranks), len(ranks)

    rows = [
        (
            prose(state.ranks, in_table=True),
            prose(state.group or "", in_table=True),
            "" if state.enqueued is None else str(state.enqueued),
            "" if state.completed is None else str(state.completed),
            {True: "yes", False: "no", None: ""}[state.alive],
            prose(state.exit or "", in_table=True),
            prose(state.watchdog, in_table=True),
            "" if state.timed_out is None else str(state.timed_out),
            "" if state.last_step is None else str(state.last_step),
        )
        for state in sorted(states, key=outlying)
    ]
    headers = (
        *("ranks", "group", "enqueued", "completed", "alive", "exit", "watchdog"),
        *("timed out in", "last step"),
    )
    blocks = ["All ranks, outliers first:", _table(headers, rows[:MAX_STATES])]
    if len(rows) > MAX_STATES:
        blocks.append(f"{len(rows) - MAX_STATES} more rows are left out here.")
    return blocks


def _tiers(tiers: Sequence[TierCount]) -> list[str]:
    """Classes of log lines, process killers first; what only follows from others is marked."""
    if not tiers:
        return []
    rows = [
        (
            str(count.tier),
            prose(count.what.replace("_", " ") + (" (a symptom)" if count.symptom else ""), in_table=True),
            str(count.count),
            prose(count.ranks, in_table=True),
            str(count.files),
            code(count.first, in_table=True),
        )
        for count in tiers[:MAX_STATES]
    ]
    return ["Lines by tier:", _table(("tier", "class", "lines", "ranks", "files", "first"), rows)]


def _parsed(ranks: str) -> tuple[int, ...]:
    try:
        return parse_ranks(ranks)
    except ValueError:
        return ()


def _recommendations(diagnosis: Diagnosis) -> list[str]:
    blocks = []
    sides = (*_SIDES, *sorted({r.side for r in diagnosis.recommendations} - set(_SIDES)))
    for side in sides:
        do = [prose(r.do) for r in diagnosis.recommendations if r.side == side]
        if do:
            blocks += [f"**{prose(side)}**", _bullets(_shortened(do, MAX_LISTED))]
    if not blocks:
        blocks = ["Nothing to change follows from the evidence."]
    if diagnosis.runbook:
        blocks.append(f"Runbook: `{diagnosis.runbook}`")
    if diagnosis.next_steps:
        steps = [_one_line(step, 4 * MAX_CHARS) for step in diagnosis.next_steps]
        fence = "`" * max(3, _longest_run(" ".join(steps)) + 1)
        blocks += ["Next steps:", "\n".join((f"{fence}sh", *steps, fence))]
    if diagnosis.missing_evidence:
        missing = [prose(what) for what in diagnosis.missing_evidence]
        blocks += ["Missing evidence:", _bullets(_shortened(missing, MAX_LISTED))]
    return blocks
