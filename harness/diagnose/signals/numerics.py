"""Numbers that went wrong: where a value first was not finite."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.diagnose.signals.history import CHECKED, EPISODE_STEPS, Episode, RankHistory
from harness.diagnose.signals.wording import who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from harness.model.ranks import format_ranks

_NAMES = {"loss": "loss", "grad_norm": "gradient norm", "param_norm": "parameter norm"}


@dataclass(frozen=True)
class _Outbreak:
    """The step in which a value first is not finite, on the ranks `first`; it is finite then on `peers`."""

    name: str
    step: int
    first: dict[int, tuple[RankHistory, Episode]]
    peers: tuple[int, ...]

    @property
    def healed(self) -> bool:
        return all(e.healed for _, e in self.first.values())

    @property
    def minority(self) -> bool:
        """Fewer than half of the ranks that recorded the value in that step."""
        return len(self.first) < len(self.peers)

    @property
    def seen(self) -> str:
        last = max(e.last for _, e in self.first.values())
        when = f"from step {self.step} on"
        if self.healed:
            many = f"in steps {self.step} to {last} only"
            when = f"in step {self.step} only" if last == self.step else many
        return f"{_NAMES[self.name]} is not finite {when}"

    @property
    def told(self) -> str:
        whose = who(sorted(self.first))
        if self.minority:
            return f"{whose}: {self.seen}; the others' is finite in that step"
        if not self.peers:
            every = f"on every rank that records it ({whose})"
            return f"{self.seen}, {every}: it may be an average, and names nobody"
        count = len(self.first) + len(self.peers)
        return f"{self.seen}, on {len(self.first)} of {count} ranks ({whose}): nobody is named"


def not_finite(histories: Sequence[RankHistory]) -> Finding | None:
    """NaN or infinity in loss, gradient norm or parameter norm: the rank and step where it appears first.

    A minority is convicted, where the others recorded a finite value of the same kind in that step: an
    average over ranks is wrong on all of them at once, and one that is logged late on all but the quick.
    Of two ranks one is suspected.
    """
    found = _outbreak(histories)
    if found is None:
        return None
    first = tuple(sorted(found.first))
    culprits = first if found.minority else ()
    after = [h.rank for h in histories if h.not_finite and h.rank not in found.first]
    whose = f"{who(first)}: " if culprits else ""
    return Finding(
        source="signal",
        kind=Kind.LOSS_NOT_FINITE,
        confidence=Confidence.LIKELY if found.healed else Confidence.CERTAIN,
        summary=found.told,
        culprits=culprits,
        suspects=first if len(first) == len(found.peers) == 1 else (),
        victims=tuple(h.rank for h in histories if h.rank not in culprits),
        where=Where(step=found.step),
        evidence=tuple(_cite(h, e, found.seen) for h, e in list(found.first.values())[:3]),
        chain=(
            f"{whose}{found.seen}",
            *((f"-> ranks {format_ranks(after)} take it over with the next exchange",) if after else ()),
        ),
    )


def _outbreak(histories: Sequence[RankHistory]) -> _Outbreak | None:
    present = [
        (e.step, CHECKED.index(name), h, e)
        for h in histories
        for name in h.not_finite
        if (e := _present(h, name)) is not None
    ]
    if not present:
        return None
    step, order, *_ = min(present, key=lambda p: p[:2])
    name = CHECKED[order]
    first = {h.rank: (h, e) for at, which, h, e in present if (at, which) == (step, order)}
    others = [h for h in histories if name in h.rhythms and h.rhythms[name].has(step)]
    peers = tuple(h.rank for h in others if h.rank not in first and not _bad_at(h, name, step))
    return _Outbreak(name, step, first, peers)


def _present(history: RankHistory, name: str) -> Episode | None:
    """What is wrong by the end of the records.

    A gradient that is finite again did no harm: a step that took it would have spoilt the parameters. What
    healed more than 50 steps ago is the past.
    """
    episodes = history.not_finite.get(name)
    if not episodes:
        return None
    last = episodes[-1]
    old = last.last < int(history.steps[-1]) - EPISODE_STEPS
    return None if last.healed and (old or name == "grad_norm") else last


def _bad_at(history: RankHistory, name: str, step: int) -> bool:
    return any(e.step <= step <= e.last for e in history.not_finite.get(name, ()))


def _cite(history: RankHistory, episode: Episode, says: str) -> Citation:
    # Line 0: the record is known from another file than the one that is named.
    line = episode.line or None
    return Citation("signal", f"rank {history.rank}: {says}", history.file, line, rank=history.rank)
