"""What was going on: saves, evaluations, the end of training."""

from tests.diagnose.logs.cases.common import LOST, STEP, Tell, abort, others
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect
from tests.diagnose.logs.cases.watchdog import (
    Wait,
    all_time_out,
    observes,
)


def long_job(line: str) -> Tell:
    """Rank 0 alone does something long; its peers stand in a barrier until their limit."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 308)
        incident.log(309, 0, line)
        barrier = Wait(1370, "ALLREDUCE", 1, 1)
        all_time_out(incident, LOST, others(incident, 0), barrier)
        observes(incident, LOST + 1, 0, 1, 1369, 1369)
        abort(incident, LOST + 3, others(incident, 0))

    return tell


def _saved(incident: Incident) -> None:
    """A save that finished is no lead; rank 5 is idle."""
    incident.steps(20, 290)
    incident.log(300, 0, "Saving checkpoint at step 28 to /ckpt/step-28")
    incident.log(306, 0, "Finished saving the checkpoint in 6.1 seconds")
    all_time_out(incident, LOST, others(incident, 5), STEP)
    observes(incident, LOST + 1, 5, 0, 1369, 1369)
    abort(incident, LOST + 2, others(incident, 5))


def done(incident: Incident, t: float) -> None:
    """The framework's word that training is complete."""
    stopped = f"`Trainer.fit` stopped: `max_steps={incident.last_step}` reached."
    words = {
        "megatron": "[after training is done] datetime: 2026-03-14 02:05:11",
        "lightning": stopped,
        "nemo": stopped,
    }
    incident.log(t, 0, words.get(incident.dress.framework, "Training completed"))


def _teardown(incident: Incident) -> None:
    incident.steps(20, 310)
    done(incident, 311)
    all_time_out(incident, LOST + 10, others(incident, 0), Wait(1370, "ALLREDUCE", 1, 1))
    observes(incident, LOST + 11, 0, 1, 1369, 1369)
    abort(incident, LOST + 13, others(incident, 0))


def _left_early(incident: Incident) -> None:
    """The launcher saw rank 3 exit with 0 long before its peers time out."""
    incident.steps(20, 310)
    said = "gpu-a0: " if incident.dress.prefix == "pdsh" else ""
    what = f"[INFO] [launch.py:351:main] Process {incident.pid(3)} exits successfully."
    incident.slurm(312, f"{said}[2026-03-14 02:05:12,114] {what}")
    all_time_out(incident, LOST, others(incident, 3), STEP)
    abort(incident, LOST + 3, others(incident, 3))


def _healthy(incident: Incident) -> None:
    incident.steps(20, 310)
    done(incident, 312)


PHASES: tuple[Case, ...] = (
    Case(
        "checkpoint",
        "15: an unfinished save when the wait began",
        Expect("checkpoint_slow", or_kinds=("rank_stalled",), either=(0,), last_step=True),
        long_job("Saving checkpoint at step 28 to /ckpt/step-28"),
        ("ranks", "cloud"),
    ),
    Case(
        "evaluation",
        "15: an evaluation on one rank when the wait began",
        Expect("rank_stalled", either=(0,), site="evaluation"),
        long_job("Running evaluation on 50000 samples"),
        ("ranks", "colour"),
    ),
    Case(
        "saved",
        "15: a finished save is no lead; 9",
        Expect("rank_stalled", either=(5,)),
        _saved,
        ("ranks", "cloud"),
    ),
    Case(
        "teardown",
        "7: completed before every timeout",
        Expect("teardown_hang", guilty=(0,)),
        _teardown,
        ("ranks", "nodes", "cloud"),
    ),
    Case(
        "left_early",
        "rank_exited, finished early: exit 0 before the others' timeouts",
        Expect("rank_exited", either=(3,), how="finished_early"),
        _left_early,
        ("pdsh", "deepspeed_nodes"),
    ),
    Case(
        "healthy", "ran to the end", Expect("healthy", last_step=True), _healthy, ("ranks", "nodes", "cloud")
    ),
)
