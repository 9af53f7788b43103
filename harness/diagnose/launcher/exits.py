"""How ranks ended, from launcher.json: who went first, and who was only cleaned up after."""

import dataclasses
from dataclasses import dataclass

from harness.model.bundle import Attempt, LauncherRecord, RankExit


@dataclass(frozen=True)
class Exits:
    """Exits of one attempt, in order of time. `resumed` is a later one that ran to a good end."""

    attempt: Attempt
    outcome: str | None
    resumed: Attempt | None = None

    @property
    def own(self) -> tuple[RankExit, ...]:
        """Ranks that ended by themselves: nobody had begun to stop them.

        A SIGTERM after another rank's failure is what torch's agent sends to the rest: clean-up.
        """
        mine = [e for e in self.attempt.exits if not e.cleanup and e.code is not None]
        failed = [e.at for e in mine if e.code != 0 and e.signal != "SIGTERM" and e.at is not None]
        first = min(failed, default=None)
        return tuple(
            e for e in mine if e.signal != "SIGTERM" or first is None or e.at is None or e.at < first
        )

    @property
    def failures(self) -> tuple[RankExit, ...]:
        """Ranks that ended by themselves and not with exit code 0."""
        return tuple(e for e in self.own if e.code != 0)

    @property
    def all_finished(self) -> bool:
        """Every rank ended with exit code 0."""
        return _finished(self.attempt)

    @property
    def first_failure_at(self) -> float | None:
        """When the first rank ended by itself, unix seconds."""
        return min((e.at for e in self.own if e.at is not None), default=None)


def _finished(attempt: Attempt) -> bool:
    codes = {e.rank: e.code for e in attempt.exits}
    return set(codes) == set(attempt.pids) != set() and set(codes.values()) == {0}


def last_exits(record: LauncherRecord | None) -> Exits | None:
    """The last attempt's exits, or None without a launcher record.

    Where the last attempt ran to a good end after a failed one, the failed one: it is what happened.
    """
    if record is None or not record.attempts:
        return None
    told, resumed = record.attempts[-1], None
    if len(record.attempts) > 1 and _finished(told):
        told, resumed = record.attempts[-2], told
    known = tuple(e for e in told.exits if e.rank in told.pids)
    return Exits(dataclasses.replace(told, exits=known), record.outcome, resumed)


def exit_text(exit_: RankExit) -> str:
    """``SIGABRT`` or ``exit code 1``."""
    if exit_.code is None:
        return "unknown"
    return exit_.signal or f"exit code {exit_.code}"
