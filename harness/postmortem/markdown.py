"""A postmortem on half a page: impact, timeline, cause, detection against recovery, what is unknown."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Kind
from harness.model.ranks import format_ranks
from harness.postmortem.costs import Fleet, lost_share, young_interval_s
from harness.postmortem.moments import Incident


@dataclass(frozen=True)
class Assumed:
    """What no bundle says. `mtbf_s`, `interval_s`: seconds; None where nobody said."""

    fleet: Fleet
    price_given: bool = True
    mtbf_s: float | None = None
    interval_s: float | None = None
    save_s: float | None = None


def postmortem(name: str, diagnosis: Diagnosis, incident: Incident, assumed: Assumed) -> str:
    """The whole page, as Markdown. Times are UTC."""
    parts = (
        _title(name, diagnosis, incident),
        _impact(incident, assumed),
        _timeline(incident, diagnosis),
        _cause(diagnosis),
        _split(incident, assumed),
        _checkpoints(incident, assumed),
        _unknown(diagnosis, incident),
        _actions(diagnosis),
    )
    return "\n".join(line for part in parts for line in part) + "\n"


def duration(seconds: float) -> str:
    """Seconds as people say them: ``9.2 s``, ``16 min``, ``3 h 20 min``."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _title(name: str, diagnosis: Diagnosis, incident: Incident) -> Iterator[str]:
    began = incident.moments[0].at if incident.moments else None
    day = f"{_utc(began):%Y-%m-%d} " if began is not None else ""
    where = f" after step {incident.step}" if incident.step is not None else ""
    whom = f", rank {format_ranks(diagnosis.culprits)}" if diagnosis.culprits else ""
    yield f"# {day}{name}: {diagnosis.kind.value}{where}{whom}"
    yield ""
    yield f"{diagnosis.summary}."


def _impact(incident: Incident, assumed: Assumed) -> Iterator[str]:
    fleet, split, known_s = assumed.fleet, incident.split, incident.known_s
    yield from ("", "## Impact", "")
    if incident.stood_still_s == 0:
        yield "This run came to its end, and at no time stood still."
        return
    hours = fleet.gpu_hours(known_s)
    price = f"{fleet.price:g} USD an hour each" + ("" if assumed.price_given else ", an assumption: --price")
    at_least = "at least " if split.unknown and incident.stood_still_s is None else ""
    yield (
        f"No progress for {at_least}{duration(known_s)} on {fleet.gpus} GPUs:"
        f" {at_least}{hours:,.3g} GPU hours, {fleet.dollars(known_s):,.2f} USD ({price})."
    )
    if split.recompute is not None:
        yield f"Of that, {duration(split.recompute)} went into steps that had been done before."


def _timeline(incident: Incident, diagnosis: Diagnosis) -> Iterator[str]:
    yield from ("", "## Timeline (UTC)", "", "| time | what | source |", "|---|---|---|")
    entries = {(m.at, m.what): m.source for m in incident.moments}
    if len(entries) < 3:
        shown = diagnosis.timeline[:12]
        entries |= {
            (e.at, f"rank {e.rank}: {e.what}" if e.rank is not None else e.what): e.file or "" for e in shown
        }
    for (at, what), source in sorted(entries.items()):
        yield f"| {_utc(at):%H:%M:%S}.{int(at % 1 * 10)} | {_cell(what)} | `{source}` |"


def _cause(diagnosis: Diagnosis) -> Iterator[str]:
    yield from ("", "## Root cause", "")
    yield f"`{diagnosis.kind.value}` ({diagnosis.category.value}), {diagnosis.confidence.value}."
    for cited in diagnosis.evidence[:5]:
        line = f":{cited.line}" if cited.line is not None else ""
        place = f"`{cited.file}{line}`: " if cited.file else ""
        yield f"- {place}{cited.says}"
    if diagnosis.runbook:
        yield f"- runbook: {diagnosis.runbook}"


def _split(incident: Incident, assumed: Assumed) -> Iterator[str]:
    if incident.stood_still_s == 0:
        return
    yield from ("", "## Detection and recovery", "", "| part | time | GPU hours | |", "|---|---|---|---|")
    meaning = {
        "detect": "last step to the first notice",
        "dump": "until the evidence was there",
        "decide": "until the restart began",
        "restart": "until all ranks had joined",
        "load": "until the first step began",
        "recompute": "until the job was where it had been",
    }
    for name, seconds in incident.split.parts():
        if seconds is None:
            yield f"| {name} | unknown | | {meaning[name]} |"
        else:
            hours = assumed.fleet.gpu_hours(seconds)
            yield f"| {name} | {duration(seconds)} | {hours:,.3g} | {meaning[name]} |"


def _checkpoints(incident: Incident, assumed: Assumed) -> Iterator[str]:
    save_s = assumed.save_s or incident.saves.save_s
    interval_s = assumed.interval_s or incident.saves.interval_s
    yield from ("", "## Checkpoint interval", "")
    mtbf_s, how = assumed.mtbf_s, "given"
    if mtbf_s is None and incident.failures and incident.lasted_s:
        mtbf_s = incident.lasted_s / incident.failures
        count = incident.failures
        how = f"from {count} failure{'s' if count > 1 else ''} in this run: too few to rely on"
    if save_s is None or mtbf_s is None:
        missing = "how long a save takes (--save)" if save_s is None else "the time between failures (--mtbf)"
        yield f"Not known: {missing}."
        return
    best = young_interval_s(save_s, mtbf_s)
    yield (
        f"Young's interval is {duration(best)}: a save takes {duration(save_s)}"
        f" ({'given' if assumed.save_s else 'measured'}), {duration(mtbf_s)} between failures ({how})."
    )
    if interval_s is not None:
        now, then = (lost_share(i, save_s, mtbf_s) for i in (interval_s, best))
        yield (
            f"Now it is {duration(interval_s)}, which loses {now:.2%} of all time to saving and recomputing;"
            f" Young's would lose {then:.2%}."
        )


def _unknown(diagnosis: Diagnosis, incident: Incident) -> Iterator[str]:
    yield from ("", "## What is unknown", "")
    went_on = incident.stood_still_s is not None
    lines = [] if went_on else [f"how long this took: {name}" for name in incident.split.unknown]
    if incident.stood_still_s:
        lines.append("why it went on by itself")
    lines += [*diagnosis.missing_evidence[:6]]
    if diagnosis.kind is Kind.INCONCLUSIVE:
        lines.append("the cause")
    for line in lines or ["nothing that this bundle could say"]:
        yield f"- {line}"


def _actions(diagnosis: Diagnosis) -> Iterator[str]:
    yield from (
        "",
        "## What went well",
        "",
        "-",
        "",
        "## Actions",
        "",
        "| what | who | until |",
        "|---|---|---|",
    )
    for do in [r.do for r in diagnosis.recommendations[:3]] or [""]:
        yield f"| {_cell(do)} | | |"


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
