"""Stops from outside, ends after the training was complete, and attempts that end alike (rules 1, 4, 7)."""

import dataclasses
from collections.abc import Sequence

from harness.diagnose.logs.event import Event
from harness.diagnose.logs.failures import Failure, Found, find_failures
from harness.diagnose.logs.first import first_failure
from harness.diagnose.logs.story import Story
from harness.diagnose.logs.symptoms import ABORTS, OF_OTHERS, exit_code
from harness.diagnose.logs.waits import read_waits
from harness.diagnose.logs.wording import cite, short
from harness.model.diagnosis import Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

STOPS = ("cancelled", "death_signal", "preempted", "sigterm")
TROUBLE = ("watchdog_timeout", "heartbeat", "barrier_missed", "gloo_wait", "init_timeout")
BY_ITS_OWN_NEED = ("PREEMPTION", "JOB REQUEUE")
STALL_FACTOR, STALL_FLOOR_S = 3.0, 90.0
"""A job without a step for longer than this hangs (DIAGNOSIS, signals)."""

NEAR_S = 60.0


def stopped_from_outside(story: Story, found: Found) -> Finding | None:
    """A cancel, a time limit, a preemption or a signal, if no crash and no timeout came before it.

    Where the order is not known, a failure of its own and a timeout outweigh the stop: a hang ends in a time
    limit, too, and a scheduler cleans up after a task that failed.
    """
    stops = [
        e
        for e in story.of(*STOPS)
        if not e.words.get("reason", "").startswith("NODE FAIL") and story.later_step(e) is None
    ]
    if not stops:
        return None
    stop = _first(stops, story)
    reason = next((e.words["reason"] for e in stops if e.words.get("reason")), None)
    troubles = _troubles(story, found)
    if reason is None and stop.what == "cancelled":
        # Without a reason it may be the clean-up after tasks that failed.
        troubles += [*found.symptoms, *story.of(*ABORTS, *OF_OTHERS)]
    for trouble in troubles:
        if story.before(stop, trouble) is not True:
            return None
    told = next((e for e in stops if e.words.get("reason")), stop)
    # A person or a time limit ends what hangs, too; a scheduler that wants the machines does not ask.
    working = _was_working(stop, story)
    if working is False and reason not in BY_ITS_OWN_NEED:
        return None
    if working is None and not any(e.what in ("cancelled", "preempted") for e in stops):
        return None
    says = reason.lower() if reason else short(told.text)
    return Finding(
        source="log",
        kind=Kind.EXTERNAL_STOP,
        confidence=Confidence.CERTAIN if reason else Confidence.LIKELY,
        summary=f"the job was stopped from outside: {says}; nothing had failed before",
        victims=story.everybody,
        where=Where(how=reason.lower().replace(" ", "_") if reason else "signal"),
        evidence=tuple(cite(e) for e in dict.fromkeys((told, stop))),
        chain=(f"stopped from outside: {says}", "-> the launcher ends all ranks"),
    )


def _was_working(stop: Event, story: Story) -> bool | None:
    """Whether steps were still made shortly before a stop; None if no line tells."""
    known: bool | None = None
    for last in story.of("step"):
        seconds = story.seconds_between(last, stop)
        if seconds is None or last.precision_s > NEAR_S or stop.precision_s > NEAR_S:
            continue
        usual = _usual_step_s(last, story)
        if seconds <= max(STALL_FACTOR * usual, STALL_FLOOR_S):
            return True
        known = False
    return known


def _usual_step_s(last: Event, story: Story) -> float:
    """What a step takes: as the line says, or from its writer's first and last line; 0 if unknown."""
    if "step_ms" in last.numbers:
        return last.numbers["step_ms"] / 1e3
    for first in story.of("step"):
        steps = last.numbers["step"] - first.numbers["step"]
        if first.file == last.file and first.rank == last.rank and steps > 0:
            seconds = story.seconds_between(first, last)
            return seconds / steps if seconds else 0.0
    return 0.0


def _first(events: Sequence[Event], story: Story) -> Event:
    first = events[0]
    for event in events[1:]:
        if story.before(event, first) is True:
            first = event
    return first


def _troubles(story: Story, found: Found) -> list[Event]:
    """What would have had to come before the stop to be the cause of it."""
    mine = [f.first for f in found.failures if not _is_stop(f)]
    return [*mine, *story.of(*TROUBLE)]


def _is_stop(failure: Failure) -> bool:
    _, number = exit_code(failure.event)
    return failure.blind and (number in (1, 2, 15) or failure.how == "exit_code")


def completed_first(story: Story, found: Found) -> Finding | None:
    """The training was complete before anything went wrong: what hangs or fails is the shutdown."""
    done = story.of("completed")
    if not done:
        return None
    end = _first(done, story)
    steps = [s for s in story.of("step") if story.before(end, s) is True]
    if any(s.rank is None or end.rank is None or s.rank != end.rank for s in steps):
        return _finished_early(story, end, steps, found)
    if any(f.kind in (Kind.CHECKPOINT_FAILED, Kind.STORAGE_FAILURE) for f in found.failures):
        # What was to be saved last is lost: these results are not usable.
        return None
    troubles = [*(f.first for f in found.failures), *story.of(*TROUBLE, *STOPS)]
    if not troubles:
        return None
    if not _for_all(done, story):
        return None
    for trouble in troubles:
        before = story.before(end, trouble)
        # Who was stopped does not say afterwards that it has completed.
        if before is False or (before is None and trouble.what not in STOPS):
            return None
    return Finding(
        source="log",
        kind=Kind.TEARDOWN_HANG,
        confidence=Confidence.LIKELY,
        summary="training was complete before anything failed: the shutdown hangs or fails, the "
        "results are usable",
        victims=story.everybody,
        evidence=(cite(end), cite(_first(troubles, story), says="only then")),
        chain=("training complete", f"-> in shutdown: {short(_first(troubles, story).text)}"),
    )


def _for_all(done: Sequence[Event], story: Story) -> bool:
    """Whether a completion line speaks for the job: said by most ranks, or by who prints its steps."""
    ranks = {e.rank for e in done if e.rank is not None}
    printing = {0, *(e.rank for e in story.of("step"))}
    if 2 * len(printing) > story.census.size > 2:
        # Each speaks for itself.
        printing = set()
    return None in {e.rank for e in done} or bool(ranks & printing) or 2 * len(ranks) > story.census.size


def _finished_early(story: Story, end: Event, steps: Sequence[Event], found: Found) -> Finding | None:
    """One rank says that it is done while others go on, and then wait for it."""
    if end.rank is None or not story.of(*TROUBLE):
        return None
    said = {e.rank for e in story.of("completed")}
    if said != {end.rank} or end.rank in story.waits.waiting:
        return None
    sure = end.strong
    summary = f"rank {end.rank} came to its end while others were still at work and waited for it"
    return Finding(
        source="log",
        kind=Kind.RANK_EXITED,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=summary,
        culprits=(end.rank,) if sure else (),
        suspects=() if sure else (end.rank,),
        victims=story.others((end.rank,)),
        where=Where(how="finished_early"),
        evidence=(cite(end), *(cite(s, says="others went on") for s in steps[:1])),
        chain=(summary, "-> the others wait for it until they give up"),
    )


def ended_well_early(story: Story, found: Found) -> Finding | None:
    """A process that its launcher saw end with exit code 0, before the others timed out."""
    troubles = story.of(*TROUBLE, "progress")
    early = [e for e in story.of("exit_ok") if all(story.before(e, t) is True for t in troubles)]
    ranks = {e.rank for e in early if e.rank is not None}
    if not troubles or len(ranks) != 1 or ranks & story.waits.waiting:
        return None
    (rank,) = ranks
    assert rank is not None
    event = next(e for e in early if e.rank == rank)
    sure = event.strong and len(story.waits.waiting) > 1
    summary = f"rank {rank} ended with exit code 0 while others were still at work and waited for it"
    return Finding(
        source="log",
        kind=Kind.RANK_EXITED,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=summary,
        culprits=(rank,) if sure else (),
        suspects=() if sure else (rank,),
        victims=story.others((rank,)),
        where=Where(how="finished_early"),
        evidence=(cite(event), cite(_first(troubles, story), says="only then")),
        chain=(summary, "-> the others wait for it until they give up"),
    )


def healthy(story: Story, found: Found) -> Finding | None:
    """The training says that it is complete, and nothing says that anything went wrong."""
    done = story.of("completed")
    if not done or found.failures or found.symptoms or story.of(*TROUBLE, *STOPS, *ABORTS):
        return None
    steps = [e.numbers["step"] for e in story.of("step")]
    last = f"; last step {max(steps)}" if steps else ""
    return Finding(
        source="log",
        kind=Kind.HEALTHY,
        confidence=Confidence.LIKELY,
        summary=f"the training ran to its end{last}",
        evidence=(cite(done[-1]),),
    )


def restart_loop(story: Story, finding: Finding | None) -> Finding | None:
    """Two or more attempts that end alike and get no further; the cause that they share is in the chain."""
    if finding is None or not story.earlier or finding.kind in (Kind.INCONCLUSIVE, Kind.EXTERNAL_STOP):
        return None
    before = story.earlier.get(story.attempt - 1)
    if not before:
        return None
    past = dataclasses.replace(story, events=before, earlier={}, waits=read_waits(before))
    then = first_failure(find_failures(past).failures, past)
    alike = then is not None and then.kind is finding.kind and set(then.culprits) == set(finding.culprits)
    if not alike or _progress(story) > _progress(past) > -1:
        return None
    count = len(story.earlier) + 1
    return dataclasses.replace(
        finding,
        kind=Kind.RESTART_LOOP,
        summary=f"{count} attempts ended alike without getting further: {finding.summary}",
        where=dataclasses.replace(finding.where, how=finding.where.how or finding.kind.value),
        evidence=(*finding.evidence, *(then.evidence[:1] if then else ())),
        chain=(
            f"{finding.kind.value}: {finding.chain[0] if finding.chain else finding.summary}",
            *finding.chain[1:],
            f"-> restarted, and again: {count} attempts",
        ),
    )


def _progress(story: Story) -> int:
    """The last step of an attempt, -1 if none is reported."""
    return max((e.numbers["step"] for e in story.of("step")), default=-1)
