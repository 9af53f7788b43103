"""Unequal numbers: who is behind, ahead or odd in a group, and who waits alone."""

from tests.diagnose.logs.cases.common import LOST, TENSOR, Tell, abort, others
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect, Group
from tests.diagnose.logs.cases.watchdog import (
    WORLD_CALLS,
    Wait,
    all_time_out,
    observes,
    times_out,
)


def data_groups_wait(incident: Incident, tensor: Group) -> None:
    """4x4: everybody outside the stuck tensor group waits for one of its members in a data group."""
    for column in range(4):
        data = Group(tuple(range(column, 16, 4)), 5 + column, "DATA_PARALLEL_GROUP")
        wait = Wait(901, "_REDUCE_SCATTER_BASE", 67108864, 16777216, enqueued=903)
        waiting = tuple(r for r in data.members if r not in tensor.members)
        all_time_out(incident, LOST + 4, waiting, wait, data)


def odd_in_group(usual: Wait, unusual: Wait) -> Tell:
    """Rank 13 is rank 1 of its tensor group; it alone is odd there."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 310)
        tensor = Group((12, 13, 14, 15), 4, TENSOR)
        all_time_out(incident, LOST, (12, 14, 15), usual, tensor)
        times_out(incident, LOST + 0.4, 13, unusual, tensor)
        data_groups_wait(incident, tensor)
        abort(incident, LOST + 7, tuple(incident.ranks))

    return tell


def _idle_in_groups(incident: Incident) -> None:
    """4x4: tensor groups of four, data groups across them; rank 11 sits in host code."""
    incident.steps(20, 310)
    tensor = Group((8, 9, 10, 11), 3, TENSOR)
    all_time_out(
        incident, LOST, (8, 9, 10), Wait(54001, enqueued=54001, numel_in=8388608, numel_out=8388608), tensor
    )
    data_groups_wait(incident, tensor)
    observes(incident, LOST + 6, 11, 8, WORLD_CALLS, WORLD_CALLS)
    abort(incident, LOST + 7, others(incident, 11))


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


_SIZE = Wait(1370, numel_in=4194305, numel_out=4194305)


NUMBERS: tuple[Case, ...] = (
    Case(
        "odd_size_in_group",
        "11: in a named group of four; the rank in the tag is not the global one",
        Expect("collective_size_mismatch", culprits=(13,)),
        odd_in_group(Wait(54001, numel_in=8192, numel_out=8192), Wait(54001, numel_in=8200, numel_out=8200)),
        ("ranks", "colour", "label"),
        world=16,
    ),
    Case(
        "behind_in_group",
        "10: in a named group of four",
        Expect("collective_skipped", culprits=(13,)),
        odd_in_group(Wait(54001), Wait(54000, "_ALLGATHER_BASE", 65536, 262144)),
        ("ranks", "nodes"),
        world=16,
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
        "behind",
        "10: behind by one while itself waiting: skipped",
        Expect("collective_skipped", culprits=(2,)),
        _behind,
        ("ranks", "mid", "lost_colour", "half_one"),
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
        ("ranks", "label", "wrapped", "glued", "half_one"),
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
        ("ranks", "cloud", "half_one"),
    ),
    Case(
        "alone",
        "10: its peers completed what it waits in",
        Expect("rank_stalled", either=(3,)),
        alone(Wait(1370)),
        ("nodes", "colour", "half"),
    ),
    Case(
        "root_ran_ahead",
        "10: a broadcast's root may be ahead",
        Expect("rank_stalled", either=(5,)),
        _root,
        ("ranks", "shuffled"),
    ),
)
