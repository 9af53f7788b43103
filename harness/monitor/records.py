"""Lines of step records to values: ours, torchtitan's spans, and what a launcher says happened."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

LARGEST = 2.0**53
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NOT_FIELDS = frozenset(("t", "rank"))


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One finished step of one rank. `t`: unix seconds; `values`: field -> number, NaN where it was NaN."""

    rank: int
    attempt: int
    t: float
    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A span of torchtitan that ended. `seconds` is NaN where its start is not in sight."""

    rank: int
    t: float
    step: int | None
    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LauncherRecord:
    """What a launcher did: launched, joined, exited, finished, restarting, stopped. `t`: unix seconds."""

    t: float
    what: str
    rank: int | None = None


Record = StepRecord | SpanRecord | LauncherRecord


@dataclass
class RecordReader:
    """Keeps the starts of spans that have not ended, a few a rank: torn logs leave some open for ever."""

    most_open: int = 64
    _open: dict[int, dict[str, float]] = field(default_factory=dict)

    def read(self, line: bytes, attempt: int | None = None) -> Record | None:
        """The record in a line; None for the start of a span and for other events.

        `attempt`: whose file it is, where that is known; else the record's own `restart_total`.

        Raises:
            ValueError: the line is no record.
        """
        try:
            said = json.loads(line)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if not isinstance(said, dict):
            raise ValueError("no JSON object")
        if "log_type_name" in said:
            return self._span(said)
        if "what" in said:
            return LauncherRecord(_number(said, "t"), str(said["what"]), _rank_or_none(said))
        return step_record(said, attempt)

    def _span(self, said: Mapping[str, object]) -> SpanRecord | None:
        """Source: torchtitan, structured_logging.py: the `value` of an ``_end`` is milliseconds."""
        name = str(said["log_type_name"])
        at = _number(said, "time_us") / 1e6
        rank = int(_number(said, "global_rank" if "global_rank" in said else "rank"))
        if name.endswith("_start"):
            started = self._open.setdefault(rank, {})
            if len(started) < self.most_open or name[:-6] in started:
                started[name[:-6]] = at
            return None
        if not name.endswith("_end"):
            return None
        started_at = self._open.get(rank, {}).pop(name[:-4], math.nan)
        value = said.get("value")
        took = value / 1000 if isinstance(value, int | float) else at - started_at
        step = said.get("step")
        return SpanRecord(rank, at, step if isinstance(step, int) else None, name[:-4], took)


def step_record(said: Mapping[str, object], attempt: int | None) -> StepRecord:
    """One of our own records.

    Raises:
        ValueError: no time, step or rank, or one that cannot be.
    """
    step = _number(said, "step")
    rank = _number(said, "rank")
    if rank < 0 or rank != int(rank) or step != int(step):
        raise ValueError("rank and step are whole numbers")
    values: dict[str, float] = {}
    for name, value in said.items():
        if name not in _NOT_FIELDS:
            if isinstance(value, int | float):
                if -LARGEST < value < LARGEST or isinstance(value, float):
                    values[name] = value
            elif isinstance(value, str) and value in _WORDS:
                values[name] = _WORDS[value]
    if attempt is None:
        attempt = int(values.get("restart_total", 0))
    return StepRecord(int(rank), attempt, _number(said, "t"), int(step), values)


def _number(said: Mapping[str, object], name: str) -> float:
    value = said.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{name} is no number")
    if not -LARGEST < value < LARGEST:
        raise ValueError(f"{name} is out of range")
    return value


def _rank_or_none(said: Mapping[str, object]) -> int | None:
    rank = said.get("rank")
    return rank if isinstance(rank, int) else None
