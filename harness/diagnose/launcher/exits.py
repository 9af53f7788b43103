"""How ranks ended, from launcher.json: who went first, and who was only cleaned up after."""

import dataclasses
from dataclasses import dataclass

from harness.model.bundle import Attempt, LauncherRecord, RankExit


@dataclass(frozen=True)
class Exits:
    """Exits of the last attempt, in order of time."""

    attempt: Attempt
    outcome: str | None

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
        codes = {e.rank: e.code for e in self.attempt.exits}
        return set(codes) == set(self.attempt.pids) != set() and set(codes.values()) == {0}


def last_exits(record: LauncherRecord | None) -> Exits | None:
    """The last attempt's exits, or None without a launcher record."""
    if record is None or not record.attempts:
        return None
    last = record.attempts[-1]
    known = tuple(e for e in last.exits if e.rank in last.pids)
    return Exits(dataclasses.replace(last, exits=known), record.outcome)


def exit_text(exit_: RankExit) -> str:
    """``SIGABRT`` or ``exit code 1``."""
    if exit_.code is None:
        return "unknown"
    return exit_.signal or f"exit code {exit_.code}"
