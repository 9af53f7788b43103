"""Who died of a cause of its own, weighed against what logs and dumps say of deaths that are symptoms."""

import re
from collections.abc import Sequence

from harness.diagnose.gathered import Gathered
from harness.diagnose.hardware.kernel import KernelEvent
from harness.diagnose.launcher.exits import exit_text
from harness.diagnose.logs.events import LogEvent
from harness.model.bundle import RankExit
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

TOGETHER_S = 0.25
"""Signals this close together are one act: the agent looks every 0.05 s and cannot order them."""


_GAVE_UP = re.compile(r"time(?:d)?[ -]?out|took longer|deadline exceeded", re.IGNORECASE)
"""Words of a rank that waited for others and lost its patience."""

_ASKED_TO_END = frozenset(("SIGTERM", "SIGHUP", "SIGINT", "SIGABRT"))
"""Signals that come of somebody else's failure as well; all others end a rank for a reason of its own."""


def own_death(gathered: Gathered, diverged: bool) -> Finding | None:
    """The rank that ended of a cause of its own, or those that did so together.

    Once anybody has failed, the others lose it: a later end without a cause in its log convicts nobody. An
    abort without a word is what gloo and NCCL do to victims: it never convicts, and where the streams of
    collectives `diverged` it is not even a suspicion. A signal beats an exception at the same moment. Ranks
    that end with the same words convict nobody: those may be what they make of somebody else's failure.
    """
    exits = gathered.exits.own if gathered.exits else ()
    early = [e for e in exits if e.code == 0 and _among_the_first(e, exits) and left_early(e, gathered)]
    if early:
        return _left_early(early[0], gathered)
    causes = [e for e in exits if _may_be_a_cause(e, gathered, diverged)]
    killed = [e for e in causes if e.signal and e.signal not in _ASKED_TO_END]
    if killed and _among_the_first(killed[0], exits):
        return _death(killed[0], gathered)
    alike = _alike(causes, gathered)
    lone = [group[0] for group in alike if len(group) == 1]
    if not lone or len(lone) < len(alike) or 2 * len(lone) >= max(gathered.world_size, 3):
        return None
    first = lone[0]
    if exception_of(first, gathered) is None:
        return _death(first, gathered) if _first_of_all(first, exits) else None
    others = [e for e in lone[1:] if exception_of(e, gathered) and _together(first, e)]
    return _death(first, gathered, tuple(others))


def ended_alike(gathered: Gathered) -> Finding | None:
    """Several ranks ended with the same words and nothing else explains it: no rank of them is the cause.

    If they are fewer than half, they are suspects; so is whoever ended with words of its own beside them.
    """
    exits = gathered.exits.own if gathered.exits else ()
    causes = [e for e in exits if _may_be_a_cause(e, gathered, diverged=False)]
    groups = sorted(_alike(causes, gathered), key=len, reverse=True)
    if not groups or len(causes) < 2:
        return None
    crowd = groups[0]
    odd = [e.rank for group in groups if len(group) == 1 for e in group] if len(crowd) > 1 else []
    few = [e.rank for e in crowd] if 2 * len(crowd) < gathered.world_size else []
    suspects = tuple(sorted(odd or few))
    raised = exception_of(crowd[0], gathered)
    ranks = format_ranks(e.rank for e in crowd)
    said = f"raised {raised.text}" if raised else f"ended with {exit_text(crowd[0])}"
    return Finding(
        source="launcher",
        kind=Kind.SOFTWARE_ERROR if raised else Kind.RANK_EXITED,
        confidence=Confidence.POSSIBLE if suspects else Confidence.LIKELY,
        summary=f"ranks {ranks} all {said}: nothing says that one of them is the cause",
        suspects=suspects,
        victims=tuple(r for r in range(gathered.world_size) if r not in suspects),
        where=Where(how="exception" if raised else "exit_code", step=step_of(crowd[0].rank, gathered)),
        evidence=tuple(cite_log(found) for e in crowd[:3] if (found := exception_of(e, gathered))),
    )


def _may_be_a_cause(exit_: RankExit, gathered: Gathered, diverged: bool) -> bool:
    """Whether an end may be a cause: not 0, no symptom, and no impatience with a rank that does not come.

    An exit code without a word may be a watchdog's (faulthandler's, say) as well.
    """
    if exit_.code == 0 or is_symptom(exit_, gathered) or (exit_.signal == "SIGABRT" and diverged):
        return False
    raised = exception_of(exit_, gathered)
    if exit_.code is not None and exit_.code > 0 and raised is None and not gathered.has_logs:
        # An exception that nobody can read: it may be of lost communication.
        return False
    impatient = _GAVE_UP.search(raised.text) if raised else exit_.signal is None
    return not (impatient and _others_stall(exit_.rank, gathered))


def _others_stall(rank: int, gathered: Gathered) -> bool:
    """Whether the dumps say that another rank never came to the call in which this one waited."""
    stalls = [f for f in gathered.flight.findings if f.kind is Kind.RANK_STALLED]
    return any(rank not in (*f.culprits, *f.suspects) for f in stalls)


def _alike(causes: Sequence[RankExit], gathered: Gathered) -> list[list[RankExit]]:
    """Ends by their words, numbers left out (a rank, a step), in the order of time."""
    groups: dict[str, list[RankExit]] = {}
    for exit_ in causes:
        raised = exception_of(exit_, gathered)
        words = _NUMBER.sub("#", raised.text) if raised else exit_text(exit_)
        groups.setdefault(words, []).append(exit_)
    return list(groups.values())


_NUMBER = re.compile(r"\d+")


def _together(one: RankExit, other: RankExit) -> bool:
    return one.at is not None and other.at is not None and abs(one.at - other.at) <= TOGETHER_S


def _among_the_first(exit_: RankExit, exits: tuple[RankExit, ...]) -> bool:
    """Whether an exit is as early as the agent can tell: those who lose a rank follow within moments."""
    times = [e.at for e in exits if e.at is not None]
    return exit_.at is not None and exit_.at - min(times) <= TOGETHER_S


def _first_of_all(exit_: RankExit, exits: tuple[RankExit, ...]) -> bool:
    """Whether nobody else failed before, or at the same time with a signal of its own."""
    for other in exits:
        if other is exit_ or other.code == 0 or other.at is None or exit_.at is None:
            continue
        together = abs(other.at - exit_.at) <= TOGETHER_S
        if other.at < exit_.at - TOGETHER_S or (together and other.signal and not exit_.signal):
            return False
    return True


def is_symptom(exit_: RankExit, gathered: Gathered) -> bool:
    """Whether a death follows from somebody else's fault: its only words are of lost communication."""
    events = [e for e in gathered.logs if e.rank == exit_.rank]
    if exit_.signal == "SIGABRT":
        return any(e.kind == "gloo_abort" for e in events)
    if exit_.code is not None and exit_.code > 0:
        return bool(events) and all(e.kind != "exception" for e in events)
    return False


def exception_of(exit_: RankExit, gathered: Gathered) -> LogEvent | None:
    """The exception that ended a rank: only an exit code, not a signal, comes of one."""
    if exit_.code is None or exit_.code <= 0:
        return None
    return next((e for e in gathered.logs if e.rank == exit_.rank and e.kind == "exception"), None)


def out_of_memory(exit_: RankExit, gathered: Gathered) -> KernelEvent | None:
    """The kernel's line on killing this very process for memory."""
    if exit_.signal != "SIGKILL":
        return None
    return next((e for e in gathered.kernel if e.kind == "oom" and e.pid == exit_.pid), None)


def left_early(exit_: RankExit, gathered: Gathered) -> bool:
    """Whether a rank left with exit code 0 while others were not done."""
    record = gathered.ranks.get(exit_.rank)
    finished = record is not None and record.finished is not None
    everybody = gathered.exits is not None and gathered.exits.all_finished
    return not finished and not everybody


def _left_early(exit_: RankExit, gathered: Gathered) -> Finding:
    rank = exit_.rank
    others = tuple(r for r in range(gathered.world_size) if r != rank)
    summary = f"rank {rank} left with exit code 0 while the others were still at work"
    return Finding(
        source="launcher",
        kind=Kind.RANK_EXITED,
        confidence=Confidence.CERTAIN,
        summary=summary,
        culprits=(rank,),
        victims=others,
        where=Where(how="finished_early", step=step_of(rank, gathered)),
        evidence=(Citation("launcher", f"rank {rank} ended first: exit code 0", "launcher.json", rank=rank),),
        chain=(summary, f"-> ranks {format_ranks(others)} lose it"),
    )


def _death(exit_: RankExit, gathered: Gathered, beside: tuple[RankExit, ...] = ()) -> Finding:
    """A rank's death; `beside`: others that died of causes of their own at the same moment."""
    raised = exception_of(exit_, gathered)
    ranks = (exit_.rank, *(e.rank for e in beside)) if raised else _died_together(exit_, gathered)
    others = tuple(r for r in range(gathered.world_size) if r not in ranks)
    record = gathered.ranks.get(exit_.rank)
    joined = record is not None and record.joined is not None
    when = "" if joined else " before it joined the group"
    who = f"rank {exit_.rank}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"
    be = "is" if len(ranks) == 1 else "are"
    summary = f"{who} {be} gone: {exit_text(exit_)}{when}"
    if raised:
        summary = "; ".join(
            f"rank {e.rank} raised {found.text}"
            for e in (exit_, *beside)
            if (found := exception_of(e, gathered))
        )
        summary += when
    silent_abort = exit_.signal == "SIGABRT"
    starved = out_of_memory(exit_, gathered)
    if len(ranks) == gathered.world_size > 1 and not starved:
        return _killed_as_a_whole(exit_, ranks, gathered)
    if starved:
        ranks, others = (exit_.rank,), tuple(r for r in range(gathered.world_size) if r != exit_.rank)
        who = f"rank {exit_.rank}"
        summary = f"{who} ran out of host memory and the kernel killed it{when}"
    how = "oom_killed" if starved else "exception" if raised else "signal" if exit_.signal else "exit_code"
    return Finding(
        source="launcher",
        kind=Kind.HOST_OOM if starved else Kind.SOFTWARE_ERROR if raised else Kind.RANK_EXITED,
        confidence=Confidence.POSSIBLE if silent_abort else Confidence.CERTAIN,
        summary=summary,
        culprits=() if silent_abort else ranks,
        suspects=ranks if silent_abort else (),
        victims=others,
        where=Where(
            how=how,
            signal=exit_.signal,
            step=step_of(exit_.rank, gathered),
        ),
        evidence=(
            Citation("launcher", f"{who} ended first: {exit_text(exit_)}", "launcher.json", rank=exit_.rank),
            *(cite_log(found) for e in (exit_, *beside) if (found := exception_of(e, gathered))),
            *(
                (Citation("kernel", starved.text, starved.file, starved.line, rank=exit_.rank),)
                if starved
                else ()
            ),
        ),
        chain=(summary, f"-> ranks {format_ranks(others)} lose {'it' if len(ranks) == 1 else 'them'}"),
    )


def _killed_as_a_whole(exit_: RankExit, ranks: tuple[int, ...], gathered: Gathered) -> Finding:
    """Nobody of a job whose ranks all end at once is the cause: a node, a pod or an operator is."""
    ended = exit_text(exit_)
    summary = f"all {len(ranks)} ranks are gone at once, {ended}: killed from outside"
    says = f"ranks {format_ranks(ranks)} ended first: {ended}"
    return Finding(
        source="launcher",
        kind=Kind.RANK_EXITED,
        confidence=Confidence.POSSIBLE if exit_.signal == "SIGABRT" else Confidence.CERTAIN,
        summary=summary,
        victims=ranks,
        where=Where(how="signal", signal=exit_.signal, step=step_of(exit_.rank, gathered)),
        evidence=(Citation("launcher", says, "launcher.json", rank=exit_.rank),),
        chain=(summary,),
    )


def _died_together(first: RankExit, gathered: Gathered) -> tuple[int, ...]:
    """All ranks that one and the same signal ended at the same time."""
    if first.signal is None or first.at is None or gathered.exits is None:
        return (first.rank,)
    return tuple(
        sorted(
            e.rank
            for e in gathered.exits.own
            if e.signal == first.signal and e.at is not None and e.at - first.at <= TOGETHER_S
        )
    )


def step_of(rank: int, gathered: Gathered) -> int | None:
    """The step that a rank was in: the one after the last that it recorded."""
    if rank in gathered.progress:
        return gathered.progress[rank].step + 1
    record = gathered.ranks.get(rank)
    return 0 if record is not None and record.joined is not None else None


def cite_log(event: LogEvent) -> Citation:
    """A log line as evidence."""
    return Citation("log", event.text, event.file, event.line, rank=event.rank)
