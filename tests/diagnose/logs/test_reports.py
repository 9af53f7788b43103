"""Torch's own reports on who did not come: desync report, debug wrapper, barriers; and pasted text."""

from pathlib import Path

import pytest

from harness.diagnose.logs.room import analyse_logs
from harness.model.finding import Finding
from harness.model.kinds import Kind
from tests.diagnose.logs.cases.writing import write


def decide(folder: Path, text: str, world: int | None) -> Finding | None:
    """What one log decides."""
    return analyse_logs([write({"job.log": text.encode()}, folder)], world).finding


def expect(folder: Path, text: str, world: int | None) -> Finding:
    found = decide(folder, text, world)
    assert found is not None
    return found


DESYNC = """\
[E1129 20:10:00.1 P.cpp:1] Timeout at collective: ALLREDUCE, #1371
[3] finished collective #1370, but didn't join collective #1371 (count from 1)
[0,1,2] joined but didn't finish collective #1371 (count from 1)
#1371 started ranks:
[0,1,2] started ALLREDUCE
"""


def test_the_desync_report_names_who_did_not_join(tmp_path: Path) -> None:
    """One of four, and the report covers all of them."""
    found = expect(tmp_path, DESYNC, 4)

    assert (found.kind, found.culprits) == (Kind.RANK_STALLED, (3,))
    assert (found.where.seq, found.where.op) == (1371, "allreduce")


def test_a_report_of_a_part_of_the_ranks_convicts_nobody(tmp_path: Path) -> None:
    """Its ranks count inside a group: in a job of eight they may be others."""
    found = expect(tmp_path, DESYNC, 8)

    assert found.culprits == ()


def test_a_report_in_a_job_of_unknown_size_convicts_nobody(tmp_path: Path) -> None:
    """Nothing says that the report covers all."""
    assert expect(tmp_path, DESYNC, None).culprits == ()


@pytest.mark.parametrize(("world", "culprits"), [(8, (6, 7)), (16, ()), (None, ())])
def test_a_report_convicts_only_where_it_covers_all(
    world: int | None, culprits: tuple[int, ...], tmp_path: Path
) -> None:
    """Two of eight did not join: in a larger job these are numbers inside a group."""
    text = DESYNC.replace("[3] fin", "[6,7] fin").replace("[0,1,2] joined", "[0,1,2,3,4,5] joined")

    found = expect(tmp_path, text, world)

    assert found.culprits == culprits


def test_if_all_joined_and_none_finished_it_is_nobody(tmp_path: Path) -> None:
    """The report then says that messages do not arrive."""
    text = "[0,1,2,3] joined but didn't finish collective #1371 (count from 1)\n"

    found = decide(tmp_path, text, 4)

    assert found is None or not {*found.culprits, *found.suspects}


def test_half_against_half_convicts_nobody(tmp_path: Path) -> None:
    """Two joined, two did not."""
    text = DESYNC.replace("[3] fin", "[2,3] fin").replace("[0,1,2] joined", "[0,1] joined")

    found = expect(tmp_path, text, 4)

    assert (found.culprits, found.suspects) == ((), (2, 3))


def fingerprint(shape: str, op: str = "ALLREDUCE", seq: int = 9) -> str:
    return (
        f"CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape=[{shape}], TensorDtypes=Float)"
    )


def mismatch(speaker: int, mine: str, peer: int, its: str) -> str:
    """What the debug wrapper of one rank raises."""
    return (
        f"[rank{speaker}]: RuntimeError: Detected mismatch between collectives on ranks. Rank "
        f"{speaker} is running "
        f"collective: {mine}, but Rank {peer} is running collective: {its}.\n"
    )


def test_two_against_one_convict_by_the_debug_wrapper(tmp_path: Path) -> None:
    """Ranks 0 and 1 agree, rank 2 differs in size."""
    text = mismatch(0, fingerprint("64"), 2, fingerprint("32")) + mismatch(
        1, fingerprint("64"), 2, fingerprint("32")
    )

    found = expect(tmp_path, text, 3)

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SIZE_MISMATCH, (2,))


def test_one_against_one_are_both_suspects(tmp_path: Path) -> None:
    """Nobody tells which side is odd."""
    found = expect(tmp_path, mismatch(0, fingerprint("64"), 1, fingerprint("32")), 2)

    assert (found.culprits, found.suspects) == ((), (0, 1))


def test_equal_fingerprints_with_unequal_numbers_are_a_false_alarm(tmp_path: Path) -> None:
    """The wrapper's own counters differ; the calls do not."""
    text = mismatch(0, fingerprint("64", seq=9), 1, fingerprint("64", seq=10))

    found = decide(tmp_path, text, 4)

    assert found is None or found.culprits == ()


@pytest.mark.parametrize(
    "text",
    [
        "[rank0]: RuntimeError: Rank 2 failed to pass monitoredBarrier in 1000 ms\n",
        "[rank0]: RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 1000 ms\n",
    ],
)
def test_a_monitored_barrier_names_who_failed_to_pass(text: str, tmp_path: Path) -> None:
    """Not the coordinator that says so."""
    found = expect(tmp_path, text, 4)

    assert (found.kind, found.culprits) == (Kind.RANK_STALLED, (2,))


def test_waiting_for_the_coordinator_names_nobody(tmp_path: Path) -> None:
    """Every victim waits for rank 0."""
    text = (
        "[rank1]: RuntimeError: Rank 1 successfully reached monitoredBarrier, but received "
        "errors while waiting for "
        "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
    )

    found = decide(tmp_path, text, 4)

    assert found is None or 0 not in {*found.culprits, *found.suspects}


def test_of_several_barriers_the_earliest_counts(tmp_path: Path) -> None:
    """What follows is missed by others, for the first's sake; it may stand in the file that is read first."""
    line = (
        "2026-08-08 03:00:00,000 node-0:42:99 [0] NCCL INFO hello\n"
        "2026-08-08 03:1{minute}:00,000 [rank0]: RuntimeError: Rank {rank} failed to pass "
        "monitoredBarrier in 1000 ms\n"
    )
    files = {"a.log": line.format(minute=5, rank=3).encode(), "b.log": line.format(minute=1, rank=2).encode()}

    found = analyse_logs([write(files, tmp_path)], 8).finding

    assert found is not None
    assert found.culprits == (2,)


@pytest.mark.parametrize(
    "text",
    [
        "Culprit rank 5; Error type: COLLECTIVE_TYPE_MISMATCH\n",
        "Collective sequence number: 39 has errors\nmissing ranks: {5}\n",
        "Not all ranks joining collective, sequence number: 39\nmissing ranks: {5}\n",
        "Collective 39 at entry 38 errors\nCulprit rank 5; Error type: SIZE_MISMATCH\n",
    ],
)
def test_pasted_text_of_another_analyzer_never_convicts(text: str, tmp_path: Path) -> None:
    """It is somebody else's conclusion, not a fact."""
    found = decide(tmp_path, text, 8)

    assert found is None or not {*found.culprits, *found.suspects}


def test_a_minority_listed_by_ras_is_not_the_culprit(tmp_path: Path) -> None:
    """A lead of one operation is skew."""
    text = (
        "1 ranks have launched up to operation 4711\n  Rank 5 -- GPU 5 managed by process 42 "
        "on node node-0\n"
        "7 ranks have launched up to operation 4712\n"
    )

    found = decide(tmp_path, text, 8)

    assert found is None or found.culprits == ()
