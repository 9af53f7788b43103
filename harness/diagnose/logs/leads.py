"""What was going on when a wait began, and who never reports: leads, never convictions (rules 15, 16)."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.diagnose.logs.endings import STOPS
from harness.diagnose.logs.event import Event
from harness.diagnose.logs.story import BEFORE_ALL, Story
from harness.diagnose.logs.symptoms import is_communication
from harness.diagnose.logs.waits import Wait
from harness.diagnose.logs.wording import cite, short, who
from harness.model.diagnosis import Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

AROUND_S = 5.0
"""A line so close to the start of the wait is about it (DIAGNOSIS, logs, rule 15)."""

BEGINNINGS = ("checkpoint_begin", "evaluation_begin", "preprocessing_begin")
ACTIVITIES = (*BEGINNINGS, *(name.replace("_begin", "_end") for name in BEGINNINGS))
LOST = ("nccl_error", "peer_closed", "gloo_wait", "store_lost", "barrier_lost")
DATA_LINES = ("retry", "connection", "storage", "ais_loader")


@dataclass(frozen=True)
class Lead:
    """What a rank was at when others began to wait for it. `site` is a word of DIAGNOSIS."""

    site: str
    event: Event
    says: str


def lead_of(rank: int, peers: Sequence[Wait], story: Story) -> Lead | None:
    """An unfinished save, evaluation or preparation, or trouble with data, of one rank around then."""
    own = story.of_rank(rank)
    files = story.census.heard.get(rank, set())
    nobodys = [e for e in story.of(*ACTIVITIES, "step") if e.rank is None and e.file in files]
    open_ = unfinished(own) or unfinished(nobodys)
    if open_ is not None:
        return Lead(_site(open_), open_, short(open_.text))
    data = [e for e in own if e.what in DATA_LINES and not _recovered(e, own)]
    near = [e for e in data if _near_beginning(e, peers, story) is not False]
    if near:
        return Lead("dataloader", near[-1], short(near[-1].text))
    return None


def unfinished(events: Sequence[Event]) -> Event | None:
    """The last activity that began and did not end, with no step after it."""
    open_: Event | None = None
    for event in events:
        if event.what in BEGINNINGS:
            open_ = event
        elif open_ is not None and (
            event.what == open_.what.replace("_begin", "_end")
            or (event.what == "step" and event.line > open_.line)
        ):
            open_ = None
    return open_


def _recovered(event: Event, own: Sequence[Event]) -> bool:
    return any(e.what == "step" and e.file == event.file and e.line > event.line for e in own)


def _near_beginning(event: Event, peers: Sequence[Wait], story: Story) -> bool | None:
    """Whether an event lies around the start of the wait or in it; None without times."""
    for wait in peers:
        seconds = story.seconds_between(event, wait.event)
        lasted = wait.lasted_s
        if seconds is None or lasted is None or event.precision_s > AROUND_S:
            continue
        return seconds <= lasted + AROUND_S * 12
    return None


def _site(event: Event) -> str:
    site = event.what.removesuffix("_begin")
    return "dataloader" if site == "preprocessing" else site


def going_on(story: Story) -> Finding | None:
    """An unfinished save, evaluation or preparation within seconds of the start of the wait."""
    waits = sorted(story.waits.waits.values(), key=lambda w: w.rank)
    if not waits:
        return None
    begun = [e for e in story.of(*BEGINNINGS) if _still_open(e, story)]
    for event in begun:
        apart = _before_wait(event, waits, story)
        if apart is None or not -AROUND_S <= apart <= AROUND_S:
            continue
        site = _site(event)
        rank = event.rank if event.rank not in story.waits.waiting else None
        what = event.what.removesuffix("_begin")
        whose = f"rank {rank} was" if rank is not None else "the job was"
        summary = (
            f"{whose} at a {what} when the others began to wait ({short(event.text)}); it may "
            f"just have been long"
        )
        kind = Kind.CHECKPOINT_SLOW if what == "checkpoint" else Kind.RANK_STALLED
        return Finding(
            source="log",
            kind=kind,
            confidence=Confidence.POSSIBLE,
            summary=summary,
            suspects=(rank,) if rank is not None else (),
            victims=tuple(w.rank for w in waits),
            where=Where(
                site=site,
                seq=waits[0].seq,
                stuck_seq=waits[0].seq,
                op=waits[0].op.lower() if waits[0].op else None,
            ),
            evidence=(cite(event), *(cite(w.event) for w in waits[:2])),
            chain=(summary, f"-> {who([w.rank for w in waits])} time out"),
        )
    return None


def _still_open(event: Event, story: Story) -> bool:
    mine = [e for e in story.events if e.file == event.file and (e.rank == event.rank)]
    return unfinished(mine) is event


def _before_wait(event: Event, waits: Sequence[Wait], story: Story) -> float | None:
    """Seconds from a line to the start of the wait; None without comparable times."""
    for wait in waits:
        seconds = story.seconds_between(event, wait.event)
        lasted = wait.lasted_s
        if seconds is not None and lasted is not None and not wait.suspended:
            return seconds - lasted
    return None


def _last_words(ranks: Sequence[int], waits: Sequence[Wait], story: Story) -> list[Event]:
    """What suspects logged around the start of the wait, or last."""
    found: list[Event] = []
    for rank in ranks[:3]:
        lead = lead_of(rank, waits, story)
        own = [e for e in story.of_rank(rank) if e.what not in ("communicator", "nccl_warn")]
        event = lead.event if lead else own[-1] if own else None
        if event is not None:
            found.append(event)
    return found


def missing_voices(story: Story) -> Finding | None:
    """Ranks that never report a timeout where all others do are suspects (rule 16)."""
    waiting = story.waits.waiting
    # Where nothing states the size, those who are heard are all that there is to be told of.
    size = story.world_size or (story.census.size if len(story.census.heard) == story.census.size else 0)
    if len(waiting) < 2:
        return None
    quiet = tuple(r for r in range(size) if r not in waiting)
    if not quiet or 2 * len(quiet) >= size:
        return None
    keys = story.waits.stuck_groups()
    if not keys:
        return None
    whole = any(w.group is None or w.group.is_default for w in story.waits.of_group(keys[0]))
    if not whole and len(quiet) > max(1, size // 16):
        # In a smaller group those who are not in it have nothing to report.
        return None
    waits = story.waits.of_group(keys[0])
    other_runs = {e.file for e in story.earlier.get(BEFORE_ALL, ())}
    heard = tuple(r for r in quiet if story.census.heard.get(r, set()) - other_runs)
    unheard = tuple(r for r in quiet if r not in heard)
    observed = tuple(r for r in heard if r in story.waits.observers)
    parts = []
    if unheard:
        parts.append(f"{who(unheard)} left no log at all")
    if heard:
        parts.append(
            f"{who(heard)} logged no timeout"
            + (f" ({who(observed)} only saw others' signal)" if observed else "")
        )
    stands = bool(heard) and not unheard
    done = next((e for e in story.of("completed") if (e.rank,) == quiet), None)
    return Finding(
        source="log",
        kind=Kind.RANK_EXITED if done else Kind.RANK_STALLED if stands else Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary=f"{who([w.rank for w in waits])} timed out in {waits[0].op or 'a collective'} seq "
        f"{waits[0].seq}; {' and '.join(parts)}: "
        + ("it may never have come" if len(quiet) == 1 else "they may never have come"),
        suspects=quiet,
        victims=tuple(sorted(waiting)),
        where=Where(
            group=waits[0].group.label if waits[0].group else None,
            seq=waits[0].seq,
            stuck_seq=waits[0].seq,
            op=waits[0].op.lower() if waits[0].op else None,
        ),
        evidence=(
            *(
                cite(event, says=f"the last of rank {event.rank}")
                for event in _last_words(heard, waits, story)
            ),
            *(cite(w.event) for w in waits[:2]),
        ),
        chain=(f"{who(quiet)}: unknown", f"-> {who([w.rank for w in waits])} time out"),
    )


def no_last_words(story: Story) -> Finding | None:
    """All but a few ranks say that they lost others: those without a word may have gone first (rule 16)."""
    lost: dict[int, Event] = {}
    for event in story.of("exception", *LOST):
        if event.rank is not None and event.strong and (event.what != "exception" or is_communication(event)):
            lost.setdefault(event.rank, event)
    stops = story.of(*STOPS)
    # Who is stopped by a signal was there until then: it did not go first.
    there = {stop.rank for stop in stops if stop.rank is not None}
    quiet = tuple(r for r in story.others(lost) if r not in there)
    if len(lost) < 2 or not quiet or 4 * len(quiet) > story.census.size:
        return None
    if any(all(story.before(event, stop) is not True for event in lost.values()) for stop in stops):
        # Ranks that are all stopped lose one another in any order.
        return None
    first = next(iter(lost.values()))
    summary = (
        f"{who(sorted(lost))} lost the connection to others; {who(quiet)} left no such word: "
        f"{'it' if len(quiet) == 1 else 'they'} may have gone first"
    )
    return Finding(
        source="log",
        kind=Kind.INCONCLUSIVE,
        confidence=Confidence.POSSIBLE,
        summary=summary,
        suspects=quiet,
        victims=tuple(sorted(lost)),
        evidence=(
            *(cite(event, says=f"the last of rank {event.rank}") for event in _last_words(quiet, (), story)),
            *(cite(event) for event in (first, *list(lost.values())[1:2])),
        ),
        chain=(f"{who(quiet)}: unknown", f"-> {who(sorted(lost))} lose the connection"),
    )
