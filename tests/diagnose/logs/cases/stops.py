"""Stops from outside: cancelled, preempted, out of time, nodes lost; and what only looks like one."""

from tests.diagnose.logs.cases import clock
from tests.diagnose.logs.cases.common import Tell, abort, others
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect
from tests.diagnose.logs.cases.watchdog import Wait, all_time_out, connection_lost, observes


def cancelled(incident: Incident, t: float, reason: str = "", what: str = "STEP 4411.0") -> None:
    """Slurm's line, and what it says next. `reason`: TIME LIMIT, PREEMPTION, NODE FAILURE, or nothing."""
    due = f" DUE TO {reason}" if reason else ""
    incident.slurm(t, f"slurmstepd: error: *** {what} ON gpu-a0 CANCELLED AT {clock.slurm(t)}{due} ***")
    incident.slurm(t, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")


def terminated(incident: Incident, t: float) -> None:
    """Agents and ranks are signalled; some raise on the way out."""
    for node in range(incident.nodes):
        incident.agent(t, node, "Received Signals.SIGTERM death signal, shutting down workers")
        for rank in incident.ranks:
            if incident.node(rank) == node:
                incident.agent(t, node, f"Sending process {incident.pid(rank)} closing signal SIGTERM")
        incident.agent(
            t + 2,
            node,
            "Traceback (most recent call "
            "last):\ntorch.distributed.elastic.multiprocessing.api.SignalException: "
            "Process 3999 got signal: 15",
        )
    incident.say(t + 0.2, 0, "[rank: 0] Received SIGTERM: 15")
    incident.raises(t + 1, 3, "RuntimeError: DataLoader worker (pid 51234) is killed by signal: Terminated. ")


def stopped(reason: str, what: str = "STEP 4411.0") -> Tell:
    """A job that trained until Slurm ended it."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 1790)
        cancelled(incident, 1800, reason, what)
        terminated(incident, 1800.2)

    return tell


def _hang_then_limit(incident: Incident) -> None:
    """The watchdogs report the hang; the aborted processes never leave, and time runs out."""
    incident.steps(20, 310)
    waiting = others(incident, 5)
    all_time_out(incident, 910, waiting, Wait(1370))
    observes(incident, 911, 5, 0, 1369, 1369)
    cancelled(incident, 3600, "TIME LIMIT")
    terminated(incident, 3600.2)


def _submitit(incident: Incident) -> None:
    incident.steps(20, 1790)
    for rank in incident.ranks:
        stamp = clock.python(1800)
        incident.say(
            1800,
            rank,
            f"submitit WARNING ({stamp}) - Caught signal SIGUSR2 on gpu-a0: this job is preempted.",
        )
        incident.say(1801, rank, f"submitit WARNING ({stamp}) - Bypassing signal SIGTERM")


def _node_lost(incident: Incident) -> None:
    incident.steps(20, 290)
    incident.slurm(300, "srun: error: Node failure on gpu-a1")
    for rank in range(8):
        connection_lost(incident, 301 + rank * 0.01, rank, incident.host(1), Wait(1370))
    cancelled(incident, 330, "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "JOB 4411")


def _cancelled_after_hang(incident: Incident) -> None:
    """A person cancels what hangs; all ranks had timed out at one number."""
    incident.steps(20, 310)
    all_time_out(incident, 910, tuple(incident.ranks), Wait(1370))
    abort(incident, 912, tuple(incident.ranks))
    cancelled(incident, 990)


STOP = Expect("external_stop", last_step=True)
BEFORE = "4: an external stop with no crash and no timeout before it"

STOPS: tuple[Case, ...] = (
    Case("time_limit", BEFORE, STOP, stopped("TIME LIMIT"), ("nodes", "label", "ranks")),
    Case("preempted", BEFORE, STOP, stopped("PREEMPTION", "JOB 4411"), ("colour", "srun_ranks", "cloud")),
    Case("cancelled", BEFORE, STOP, stopped(""), ("nodes", "label")),
    Case("submitit", BEFORE, STOP, _submitit, ("srun_ranks", "label")),
    Case(
        "hang_then_limit",
        "4: a hang ends in TIME LIMIT, too; 9",
        Expect("rank_stalled", either=(5,)),
        _hang_then_limit,
        ("ranks", "label"),
    ),
    Case(
        "cancelled_after_hang",
        "4: CANCELLED without a reason after failures is clean-up; 12",
        Expect("fabric_stalled"),
        _cancelled_after_hang,
        ("ranks", "nodes"),
    ),
    Case(
        "node_failure",
        "kinds: node_lost",
        Expect("node_lost", hosts=("gpu-a1",), either=tuple(range(8, 16))),
        _node_lost,
        ("nodes", "label"),
        world=16,
    ),
)
