"""The states of a job as whoever is on call sees them: a table of edges, and nothing else."""

from collections.abc import Mapping
from enum import Enum


class State(str, Enum):
    """What a job is doing. Each alert means something in some of them only."""

    RUNNING = "running"
    STALLED = "stalled"
    NUMERIC_FAULT = "numeric_fault"
    HARDWARE_FAULT = "hardware_fault"
    RESTARTING = "restarting"
    RESUMING = "resuming"
    ESCALATED = "escalated"
    STOPPED = "stopped"


class Happening(str, Enum):
    """What moves a job from one state to another."""

    STEPPED = "a step was finished"
    OVERDUE = "no step for too long"
    STALLED_AGAIN = "no step for too long, soon after a restart"
    NOT_FINITE = "the loss is not finite"
    FINITE = "the loss is finite"
    HARDWARE = "a card reported an XID"
    QUIET = "no card has reported anything for a while"
    RESTART = "the launcher starts the ranks again"
    JOINED = "the ranks of the new start have joined"
    CAUGHT_UP = "the step from before the restart was passed"
    RESTART_OVERDUE = "the restart takes too long"
    EXHAUSTED = "restarts fail one after another"
    GONE = "the processes ended and nothing came back"
    ENDED = "training was finished, or stopped on purpose"


_S, _H = State, Happening

EDGES: Mapping[tuple[State, Happening], State] = {
    (_S.RUNNING, _H.OVERDUE): _S.STALLED,
    (_S.RUNNING, _H.STALLED_AGAIN): _S.ESCALATED,
    (_S.RUNNING, _H.NOT_FINITE): _S.NUMERIC_FAULT,
    (_S.RUNNING, _H.HARDWARE): _S.HARDWARE_FAULT,
    (_S.STALLED, _H.STEPPED): _S.RUNNING,
    (_S.NUMERIC_FAULT, _H.FINITE): _S.RUNNING,
    (_S.NUMERIC_FAULT, _H.OVERDUE): _S.STALLED,
    (_S.HARDWARE_FAULT, _H.OVERDUE): _S.STALLED,
    (_S.HARDWARE_FAULT, _H.NOT_FINITE): _S.NUMERIC_FAULT,
    (_S.HARDWARE_FAULT, _H.QUIET): _S.RUNNING,
    (_S.HARDWARE_FAULT, _H.STALLED_AGAIN): _S.ESCALATED,
    (_S.RESTARTING, _H.JOINED): _S.RESUMING,
    (_S.RESTARTING, _H.STEPPED): _S.RESUMING,
    (_S.RESTARTING, _H.CAUGHT_UP): _S.RUNNING,
    (_S.RESTARTING, _H.RESTART_OVERDUE): _S.STALLED,
    (_S.RESUMING, _H.CAUGHT_UP): _S.RUNNING,
    (_S.RESUMING, _H.STALLED_AGAIN): _S.ESCALATED,
    (_S.RESUMING, _H.RESTART_OVERDUE): _S.ESCALATED,
    (_S.RESUMING, _H.NOT_FINITE): _S.NUMERIC_FAULT,
    (_S.RESTARTING, _H.EXHAUSTED): _S.STOPPED,
    (_S.RESUMING, _H.EXHAUSTED): _S.STOPPED,
    (_S.ESCALATED, _H.CAUGHT_UP): _S.RUNNING,
    (_S.STOPPED, _H.JOINED): _S.RESUMING,
    (_S.STOPPED, _H.STEPPED): _S.RESUMING,
    (_S.STOPPED, _H.CAUGHT_UP): _S.RUNNING,
    **{(state, _H.RESTART): _S.RESTARTING for state in State},
    **{(state, _H.GONE): _S.STOPPED for state in State},
    **{(state, _H.ENDED): _S.STOPPED for state in State},
}
"""Where no edge is named, a happening changes nothing: it is what the state is about, or noise in it."""


def advance(state: State, happening: Happening) -> State:
    """The state after something happened."""
    return EDGES.get((state, happening), state)
