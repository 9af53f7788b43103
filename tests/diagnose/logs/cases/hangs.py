"""Hangs: one idle rank, all in one call, groups that never form, and when nobody can be blamed."""

from dataclasses import replace

from tests.diagnose.logs.cases import launchers
from tests.diagnose.logs.cases.common import LOST, STEP, abort, others
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect, Group
from tests.diagnose.logs.cases.watchdog import (
    WORLD_CALLS,
    Wait,
    all_time_out,
    dies,
    heartbeat,
    observes,
    taken_down,
    times_out,
)


def idle(rank: int, first: int = 0) -> Case:
    """Everybody waits for one live rank that issued nothing."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 310)
        waiting = others(incident, rank)
        all_time_out(incident, LOST, waiting, STEP)
        observes(incident, LOST + 1, rank, first, 1369, 1369)
        abort(incident, LOST + 2, waiting)

    return Case(
        "idle_rank",
        "9: enqueued = completed everywhere, below its peers, no timeout of its own",
        Expect("rank_stalled", either=(rank,), last_step=True, expected_ranks=8),
        tell,
        ("ranks", "cloud", "shuffled", "wrapped", "glued", "half"),
    )


def _idle_of_many(incident: Incident) -> None:
    incident.steps(20, 310)
    waiting = others(incident, 777)
    all_time_out(incident, LOST, waiting, STEP)
    observes(incident, LOST + 6, 777, 12, 1369, 1369)
    abort(incident, LOST + 7, waiting)


def _fabric(incident: Incident) -> None:
    incident.steps(20, 310)
    all_time_out(incident, LOST, tuple(incident.ranks), STEP)
    abort(incident, LOST + 2, tuple(incident.ranks))


def _fabric_then_heartbeats(incident: Incident) -> None:
    incident.steps(20, 310)
    all_time_out(incident, LOST, tuple(incident.ranks), STEP)
    incident.c10(
        LOST + 9,
        2,
        "Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
        where="ProcessGroupNCCL.cpp:1650",
    )
    heartbeat(incident, LOST + 480, 2)
    abort(incident, LOST + 545, tuple(incident.ranks))


def _fabric_garbage(incident: Incident) -> None:
    """Rank 4's completed counter is garbage."""
    incident.steps(20, 310)
    all_time_out(incident, LOST, others(incident, 4), STEP)
    times_out(incident, LOST + 0.4, 4, replace(STEP, enqueued=1370, completed=94471337))
    abort(incident, LOST + 2, tuple(incident.ranks))


def _heartbeat_one(incident: Incident) -> None:
    incident.steps(20, 310)
    heartbeat(incident, 790, 3)
    abort(incident, 851, (3,))


def _heartbeat_all(incident: Incident) -> None:
    incident.steps(20, 310)
    for rank in incident.ranks:
        heartbeat(incident, 790 + rank * 0.02, rank, pending=100 + rank)
    abort(incident, 851, tuple(incident.ranks))


def _init(incident: Incident) -> None:
    never = Wait(1, enqueued=1, completed=-1, numel_in=1, numel_out=1)
    all_time_out(incident, 620, tuple(incident.ranks), never)
    abort(incident, 623, tuple(incident.ranks))


def _store(incident: Incident) -> None:
    for rank in incident.ranks:
        incident.raises(
            1810 + rank * 0.01,
            rank,
            "torch.distributed.DistStoreError: Timed out initializing process group in store based "
            f"barrier on rank: {rank}, "
            "for key: store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)",
        )
    launchers.ended(incident, 1812, dict.fromkeys(incident.ranks, (1, 1811.0)))


def _store_after_requeue(incident: Incident) -> None:
    incident.slurm(
        1, "slurmstepd: error: *** JOB 4411 ON gpu-a0 CANCELLED AT 2026-03-14T01:58:30 DUE TO JOB REQUEUE ***"
    )
    _store(incident)


def _pipeline_first(incident: Incident) -> None:
    """The first call of a pipeline group is a coalesced one; the job had run before."""
    incident.steps(20, 110)
    group = Group((0, 4), 7, "PIPELINE_MODEL_PARALLEL_GROUP")
    unknown = 2**64 - 1
    times_out(incident, LOST, 4, Wait(1, "COALESCED", unknown, unknown, completed=-1), group)
    observes(incident, LOST + 1, 0, 4, WORLD_CALLS, WORLD_CALLS)
    abort(incident, LOST + 3, (4,))


def _bare(incident: Incident) -> None:
    """Nothing but ranks inside groups, in one file without prefixes."""
    why = "CUDA error: an illegal memory access was encountered"
    incident.c10(310, 5, f"[Rank 1] NCCL watchdog thread terminated with exception: {why}")
    dies(incident, 310.1, 5, f"[Rank 1] NCCL watchdog thread terminated with exception: {why}", Group((4, 5)))


def _nothing(incident: Incident) -> None:
    """Aborts of all, and no line that says of what."""
    incident.steps(20, 310)
    taken_down(incident, LOST, tuple(incident.ranks))
    abort(incident, LOST + 2, tuple(incident.ranks))


_NOBODY = Expect("fabric_stalled", expected_ranks=8)


HANGS: tuple[Case, ...] = (
    idle(5),
    Case(
        "idle_of_1024",
        "9, at scale",
        Expect("rank_stalled", either=(777,), expected_ranks=1024),
        _idle_of_many,
        ("nodes", "cloud"),
        world=1024,
        large=True,
    ),
    Case(
        "fabric",
        "12: all members, own timeouts, one number, equal arguments",
        _NOBODY,
        _fabric,
        ("nodes", "lost_colour", "pdsh", "half"),
    ),
    Case(
        "fabric_2x8",
        "12, two nodes",
        Expect("fabric_stalled", expected_ranks=16),
        _fabric,
        ("ranks", "label"),
        world=16,
    ),
    Case(
        "fabric_then_heartbeats",
        "13: heartbeats after timeouts are effects",
        _NOBODY,
        _fabric_then_heartbeats,
        ("ranks", "cloud"),
    ),
    Case(
        "fabric_garbage",
        "9: completed above enqueued is garbage",
        _NOBODY,
        _fabric_garbage,
        ("nodes", "pdsh"),
    ),
    Case(
        "missing_log",
        "12, 16: one missing is a suspect",
        Expect("inconclusive", suspects=(6,), guilty=(), missing="6", next_steps=True, expected_ranks=8),
        _fabric,
        ("ranks", "srun_ranks", "label"),
        lost=(6,),
    ),
    Case(
        "missing_node",
        "12, 16: a node whose file is missing",
        Expect(
            "inconclusive",
            suspects=tuple(range(16, 24)),
            missing="16-23",
            next_steps=True,
            expected_ranks=32,
        ),
        _fabric,
        ("nodes", "ranks"),
        world=32,
        lost=tuple(range(16, 24)),
    ),
    Case(
        "heartbeat_one",
        "13: one rank, no timeout before",
        Expect("rank_stalled", either=(3,), site="gil|cuda_api"),
        _heartbeat_one,
        ("nodes", "cloud"),
    ),
    Case(
        "heartbeat_all",
        "13: on several they are effects",
        Expect("inconclusive", next_steps=True),
        _heartbeat_all,
        ("ranks", "label"),
    ),
    Case(
        "init",
        "14: the first call of all, nothing ever completed",
        Expect("init_stuck"),
        _init,
        ("ranks", "mid"),
        world=16,
    ),
    Case("stale_store", "14: more workers than the world", Expect("init_stuck"), _store, ("ranks", "nodes")),
    Case(
        "stale_store_requeued",
        "14: a requeue precedes it",
        Expect("external_stop"),
        _store_after_requeue,
        ("nodes", "label"),
    ),
    Case(
        "pipeline_first_call",
        "14: a coalesced first call is no init",
        Expect("inconclusive", or_kinds=("p2p_mismatch", "rank_stalled", "gpu_stalled"), guilty=(0, 4)),
        _pipeline_first,
        ("ranks", "colour"),
    ),
    Case(
        "bare_group_ranks",
        "2: a rank in a group never convicts",
        Expect("device_assert"),
        _bare,
        ("bare", "bare_colour"),
        quiet=True,
    ),
    Case(
        "no_cause",
        "16: the text shows no cause",
        Expect("inconclusive", next_steps=True),
        _nothing,
        ("ranks", "old_nodes", "label"),
    ),
)
