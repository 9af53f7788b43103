"""Hangs: who waits, who is idle, who is behind, and when nobody can be blamed."""

from collections.abc import Callable
from dataclasses import replace

from tests.diagnose.logs.cases import launchers
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect, Group
from tests.diagnose.logs.cases.watchdog import (
    Wait,
    all_time_out,
    dies,
    heartbeat,
    observes,
    times_out,
)

Tell = Callable[[Incident], None]
STEP = Wait(1370, enqueued=1372)
LOST = 910.0


def abort(incident: Incident, t: float, ranks: tuple[int, ...]) -> None:
    """The watchdogs' aborts as the launcher sees them; who did not abort is closed by the agent."""
    launchers.ended(incident, t + 3, dict.fromkeys(ranks, (-6, t + 1.5)))


def others(incident: Incident, *odd: int) -> tuple[int, ...]:
    return tuple(r for r in incident.ranks if r not in odd)


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
        ("ranks", "cloud", "shuffled", "wrapped", "glued"),
    )


def _idle_of_many(incident: Incident) -> None:
    incident.steps(20, 310)
    waiting = others(incident, 777)
    all_time_out(incident, LOST, waiting, STEP)
    observes(incident, LOST + 6, 777, 12, 1369, 1369)
    abort(incident, LOST + 7, waiting)


def _idle_in_groups(incident: Incident) -> None:
    """4x4: tensor groups of four, data groups across them; rank 11 sits in host code."""
    incident.steps(20, 310)
    tensor = Group((8, 9, 10, 11), 3, "TENSOR_MODEL_PARALLEL_GROUP")
    all_time_out(
        incident, LOST, (8, 9, 10), Wait(54001, enqueued=54001, numel_in=8388608, numel_out=8388608), tensor
    )
    for column in range(4):
        data = Group(tuple(range(column, 16, 4)), 5 + column, "DATA_PARALLEL_GROUP")
        wait = Wait(901, "_REDUCE_SCATTER_BASE", 67108864, 16777216, enqueued=903)
        all_time_out(
            incident, LOST + 4, tuple(r for r in data.members if r not in (8, 9, 10, 11)), wait, data
        )
    observes(incident, LOST + 6, 11, 8, 77, 77)
    abort(incident, LOST + 7, others(incident, 11))


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


def _behind(incident: Incident) -> None:
    """Rank 2 left one call out, and waits in the next one, which is its peers' next but one."""
    incident.steps(20, 310)
    all_time_out(incident, LOST, others(incident, 2), Wait(1370))
    times_out(incident, LOST + 1.2, 2, Wait(1369, "_ALLGATHER_BASE", 65536, 524288))
    abort(incident, LOST + 3, tuple(incident.ranks))


def _ahead(incident: Incident) -> None:
    """Rank 6 issued a call more than its peers, who are one call behind it and wait."""
    incident.steps(20, 310)
    all_time_out(incident, LOST, others(incident, 6), Wait(1370))
    times_out(incident, LOST + 1.2, 6, Wait(1371))
    abort(incident, LOST + 3, tuple(incident.ranks))


def odd(rank: int, wait: Wait) -> Tell:
    """All wait at one number; one of them in something else."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 310)
        all_time_out(incident, LOST, others(incident, rank), Wait(1370))
        times_out(incident, LOST + 0.3, rank, wait)
        abort(incident, LOST + 3, tuple(incident.ranks))

    return tell


def _uneven(incident: Incident) -> None:
    incident.steps(20, 310)
    for rank in incident.ranks:
        times_out(
            incident,
            LOST + rank * 0.02,
            rank,
            Wait(1370, "ALLTOALL_BASE", 4096 * (rank + 1), 4096 * (9 - rank)),
        )
    abort(incident, LOST + 2, tuple(incident.ranks))


def alone(wait: Wait) -> Tell:
    """Rank 3 waits in a call that all its peers completed."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 310)
        times_out(incident, LOST, 3, wait)
        for rank in others(incident, 3):
            observes(incident, LOST + 1 + rank * 0.01, rank, 3, 1371, 1370)
        abort(incident, LOST + 3, (3,))

    return tell


def _root(incident: Incident) -> None:
    """Rank 0 is the root of a broadcast: it completes its side and goes on. Rank 5 never comes."""
    incident.steps(20, 310)
    all_time_out(incident, LOST, others(incident, 0, 5), Wait(1370, "BROADCAST", 1, 1))
    times_out(incident, LOST + 0.5, 0, Wait(1371))
    observes(incident, LOST + 1, 5, 1, 1369, 1369)
    abort(incident, LOST + 3, others(incident, 5))


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
    observes(incident, LOST + 1, 0, 4, 211, 210)
    abort(incident, LOST + 3, (4,))


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


def _teardown(incident: Incident) -> None:
    last = incident.steps(20, 310)
    done = {
        "megatron": "[after training is done] datetime: 2026-03-14 02:05:11",
        "lightning": f"`Trainer.fit` stopped: `max_steps={last}` reached.",
        "nemo": f"`Trainer.fit` stopped: `max_steps={last}` reached.",
    }
    incident.log(311, 0, done.get(incident.dress.framework, "Training completed"))
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


def _bare(incident: Incident) -> None:
    """Nothing but ranks inside groups, in one file without prefixes."""
    why = "CUDA error: an illegal memory access was encountered"
    incident.c10(310, 5, f"[Rank 1] NCCL watchdog thread terminated with exception: {why}")
    dies(incident, 310.1, 5, f"[Rank 1] NCCL watchdog thread terminated with exception: {why}", Group((4, 5)))


def _nothing(incident: Incident) -> None:
    """Aborts of all, and no line that says of what."""
    incident.steps(20, 310)
    for rank in incident.ranks:
        incident.say(LOST, rank, "terminate called without an active exception")
    abort(incident, LOST + 2, tuple(incident.ranks))


def _healthy(incident: Incident) -> None:
    incident.steps(20, 310)
    incident.log(312, 0, "Training completed")


_SIZE = Wait(1370, numel_in=4194305, numel_out=4194305)
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
        "idle_in_groups",
        "9: a lead only; who waits in one group is not idle in another",
        Expect("rank_stalled", or_kinds=("inconclusive",), either=(11,)),
        _idle_in_groups,
        ("ranks", "colour"),
        world=16,
    ),
    Case(
        "fabric",
        "12: all members, own timeouts, one number, equal arguments",
        _NOBODY,
        _fabric,
        ("nodes", "lost_colour", "pdsh"),
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
        "behind",
        "10: behind by one while itself waiting: skipped",
        Expect("collective_skipped", culprits=(2,)),
        _behind,
        ("ranks", "mid", "lost_colour"),
    ),
    Case(
        "ahead",
        "10: ahead by one: issued one more",
        Expect("collective_extra", culprits=(6,)),
        _ahead,
        ("nodes", "pdsh"),
    ),
    Case(
        "odd_size",
        "11: equal number, unequal size",
        Expect("collective_size_mismatch", culprits=(4,)),
        odd(4, _SIZE),
        ("ranks", "label", "wrapped", "glued"),
    ),
    Case(
        "odd_size_2x8",
        "11, two nodes",
        Expect("collective_size_mismatch", culprits=(12,)),
        odd(12, _SIZE),
        ("nodes", "shuffled"),
        world=16,
    ),
    Case(
        "odd_operation",
        "11: equal number, unequal operation",
        Expect("collective_type_mismatch", culprits=(7,)),
        odd(7, Wait(1370, "BROADCAST")),
        ("nodes", "mid"),
    ),
    Case(
        "uneven",
        "11: uneven all_to_all is no mismatch",
        Expect("fabric_stalled", or_kinds=("inconclusive",)),
        _uneven,
        ("ranks", "cloud"),
    ),
    Case(
        "alone_ran_on",
        "10: its peers completed what it waits in; its host ran on",
        Expect("gpu_stalled", either=(3,)),
        alone(Wait(1370, enqueued=1390)),
        ("ranks", "cloud"),
    ),
    Case(
        "alone",
        "10: its peers completed what it waits in",
        Expect("rank_stalled", either=(3,)),
        alone(Wait(1370)),
        ("nodes", "colour"),
    ),
    Case(
        "root_ran_ahead",
        "10: a broadcast's root may be ahead",
        Expect("rank_stalled", either=(5,)),
        _root,
        ("ranks", "shuffled"),
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
    Case(
        "healthy", "ran to the end", Expect("healthy", last_step=True), _healthy, ("ranks", "nodes", "cloud")
    ),
)
