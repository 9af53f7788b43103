"""Explicit reports: the debug wrapper, barriers, desync, other analyzers' text, and text that proves "
"little."""

from dataclasses import replace

from tests.diagnose.logs.cases import launchers
from tests.diagnose.logs.cases.common import Tell, abort, others
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect
from tests.diagnose.logs.cases.watchdog import Wait, connection_lost, taken_down, times_out


def fingerprint(seq: int, op: str, shape: int, dtype: str = "Float") -> str:
    return (
        f"CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape=[{shape}], "
        f"TensorDtypes={dtype}, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)))"
    )


def mismatch(reporter: int, own: str, other: int, theirs: str) -> str:
    return (
        f"RuntimeError: Detected mismatch between collectives on ranks. Rank {reporter} is running "
        f"collective: {own}, "
        f"but Rank {other} is running collective: {theirs}."
    )


def wrapper(odd: int, op: str, shape: int, differ: str, seq: int = 485, dtype: str = "Float") -> Tell:
    """Each innocent rank compares itself with the odd one; the odd one with rank 0."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 290)
        usual, unusual = fingerprint(485, "ALLREDUCE", 4194304), fingerprint(seq, op, shape, dtype)
        for rank in incident.ranks:
            pair = (0, usual) if rank == odd else (odd, unusual)
            own = unusual if rank == odd else usual
            text = mismatch(rank, own, *pair)
            incident.raises(
                300 + rank * 0.01, rank, f"{text}Collectives differ in the following aspects: \t {differ}"
            )
        launchers.ended(incident, 303, dict.fromkeys(incident.ranks, (1, 301.0)))

    return tell


def _monitored(incident: Incident) -> None:
    incident.steps(20, 290)
    incident.raises(600, 0, "RuntimeError: [Rank 0]: Ranks 3, 6 failed to pass monitoredBarrier in 300000 ms")
    for rank in others(incident, 0, 3, 6):
        incident.raises(
            600.5 + rank * 0.01,
            rank,
            f"RuntimeError: Rank {rank} successfully reached monitoredBarrier, but received errors while "
            "waiting for "
            "send/recv from rank 0. Please check rank 0 logs for faulty rank.\nOriginal exception: \n"
            "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
            "300000ms for recv "
            "operation to complete",
        )
    launchers.ended(incident, 603, dict.fromkeys(others(incident, 3, 6), (1, 601.0)))


def desync(verdict: str, snapshot: str) -> Tell:
    """Rank 0's watchdog adds a report of all ranks' states."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 310)
        incident.c10(
            910,
            0,
            "\n\t - [0] Timeout at collective: ALLREDUCE, #1370\n\t - To our best knowledge, the "
            "lagging/dead/"
            "mismatched ranks that caused the desync are:\n\t   - "
            f"{verdict}\n\t - Snapshot of ranks' latest states:\n{snapshot}",
        )
        abort(incident, 912, (0,))

    return tell


def _pasted(incident: Incident) -> None:
    """Somebody ran an analyzer on other dumps and pasted its text."""
    incident.steps(20, 290)
    for row in (
        "Collective sequence number: 1370 has errors",
        "internal record id: 1368",
        "group info: 0:default_pg",
        "Culprit rank 3; Error type: COLLECTIVE_TYPE_MISMATCH, Expected op: all_reduce, but found op: "
        "broadcast",
        "Not all ranks joining collective, sequence number: 1371",
        "missing ranks: {5}",
    ):
        incident.say(700, 0, row)
    taken_down(incident, 908, tuple(incident.ranks))
    abort(incident, 910, tuple(incident.ranks))


def _ras(incident: Incident) -> None:
    """The listed minority is only the smaller part, and a lead of one is skew."""
    incident.steps(20, 290)
    for row in (
        "Communicator ranks have different AllReduce operation counts",
        "  7 ranks have launched up to operation 1370",
        "  1 rank has launched up to operation 1371",
        "  Rank 3 -- GPU 3 managed by process 40003 on node 10.0.0.10",
    ):
        incident.say(700, 0, row)
    taken_down(incident, 908, tuple(incident.ranks))
    abort(incident, 910, tuple(incident.ranks))


def _deduplicated(incident: Incident) -> None:
    """Ray shows one rank's lines and counts the rest."""
    incident.steps(20, 310)
    times_out(incident, 910, 3, Wait(1370))
    incident.lines = [
        replace(line, text=line.text.rstrip("\n") + " [repeated 7x across cluster]")
        if line.src == "c10"
        else line
        for line in incident.lines
    ]


def _completion(incident: Incident) -> None:
    """An InfiniBand completion with an error, and everybody loses somebody: a lead to the fabric, no rank."""
    incident.steps(20, 290)
    incident.nccl(
        300,
        3,
        "NET/IB: Got completion from peer 10.0.0.11<51234> with status=12 opcode=129 len=0 vendor err 129 "
        "(Send)",
        "WARN",
    )
    for rank in incident.ranks:
        connection_lost(incident, 301 + rank * 0.01, rank, incident.host(1 - incident.node(rank)), Wait(1370))
    abort(incident, 303, tuple(incident.ranks))


_LATE = desync(
    "[3] finished collective #1369, but didn't join collective #1370 (count from 1)",
    "\t   #1369 finished ranks:\n\t     [3] finished ALLREDUCE\n\t   #1370 started ranks:\n\t     "
    "[0,1,2,4,5,6,7] started ALLREDUCE",
)
_ALL_JOINED = desync(
    "[0,1,2,3,4,5,6,7] joined but didn't finish collective #1370 (count from 1)",
    "\t   #1370 started ranks:\n\t     [0,1,2,3,4,5,6,7] started ALLREDUCE",
)

REPORTS: tuple[Case, ...] = (
    Case(
        "detail_size",
        "8: two against one in one message's number",
        Expect("collective_size_mismatch", culprits=(5,)),
        wrapper(5, "ALLREDUCE", 4194305, "Tensor Tensor shapes: 4194304vs 4194305"),
        ("ranks", "label", "cloud"),
    ),
    Case(
        "detail_operation",
        "8: two against one",
        Expect("collective_type_mismatch", culprits=(2,)),
        wrapper(2, "BROADCAST", 4194304, "Op type: ALLREDUCEvs BROADCAST"),
        ("nodes", "colour"),
    ),
    Case(
        "detail_dtype",
        "8: two against one",
        Expect("collective_dtype_mismatch", culprits=(6,)),
        wrapper(6, "ALLREDUCE", 4194304, "Tensor Tensor dtypes: Floatvs BFloat16", dtype="BFloat16"),
        ("ranks", "nodes"),
    ),
    Case(
        "detail_of_two",
        "8: one against one convicts nobody",
        Expect("collective_size_mismatch", suspects=(0, 1)),
        wrapper(1, "ALLREDUCE", 4194305, "Tensor Tensor shapes: 4194304vs 4194305"),
        ("ranks", "label"),
        world=2,
        per_node=2,
    ),
    Case(
        "detail_numbers_only",
        "8: equal fingerprints with unequal numbers are the wrapper's false positive",
        Expect("inconclusive", or_kinds=("software_error",)),
        wrapper(5, "ALLREDUCE", 4194304, "Sequence number: 485vs 486", seq=486),
        ("ranks", "label"),
    ),
    Case(
        "monitored_barrier",
        "8: it names who did not pass; the coordinator is named always",
        Expect("rank_stalled", either=(3, 6), or_kinds=("inconclusive",)),
        _monitored,
        ("ranks", "cloud"),
    ),
    Case(
        "desync",
        "8: who did not join",
        Expect("rank_stalled", either=(3,)),
        _LATE,
        ("old", "ranks", "mid"),
    ),
    Case(
        "desync_all_joined",
        "8: all joined and none finished: nobody",
        Expect("fabric_stalled", or_kinds=("inconclusive",)),
        _ALL_JOINED,
        ("old", "mid"),
    ),
    Case(
        "pasted",
        "8: another analyzer's text never convicts",
        Expect("inconclusive", next_steps=True),
        _pasted,
        ("ranks", "label"),
    ),
    Case(
        "ras",
        "8: the minority that RAS lists is not the culprit",
        Expect("inconclusive", next_steps=True),
        _ras,
        ("ranks", "nodes"),
    ),
    Case(
        "deduplicated",
        "12, traps: a de-duplicated line is several; nobody is accused by silence alone",
        Expect("inconclusive", or_kinds=("fabric_stalled",)),
        _deduplicated,
        ("ray", "ray_colour"),
    ),
    Case(
        "completion_error",
        "6: status 12 is a lead; closed connections name hosts",
        Expect("inconclusive", or_kinds=("fabric_stalled",)),
        _completion,
        ("ranks", "label"),
        world=16,
    ),
)
