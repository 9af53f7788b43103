"""Hangs by what watchdogs say: who is behind, ahead, alone, or nobody; the reporters are victims."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.diagnose.logs.room import LogsResult, analyse_logs
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from tests.diagnose.logs.cases.writing import write

DEFAULT = "[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
TENSOR = "[PG ID 2 PG GUID 7(tp) Rank {rank}]"


def timeout(
    rank: int,
    seq: int = 1371,
    op: str = "ALLREDUCE",
    sizes: tuple[int, int] = (4096, 4096),
    tag: str = DEFAULT,
    at: str = "20:10:00.100000",
    ran_ms: int = 600049,
) -> str:
    """A rank's own timeout."""
    return (
        f"[rank{rank}]:[E1129 {at} ProcessGroupNCCL.cpp:685] {tag.format(rank=rank)} Watchdog "
        "caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={sizes[0]}, NumelOut={sizes[1]}, "
        f"Timeout(ms)=600000) ran for {ran_ms} milliseconds before timing out."
    )


def progress(rank: int, enqueued: int, completed: int, tag: str = DEFAULT) -> str:
    """What a rank says of its own works."""
    return (
        f"[rank{rank}]:[E1129 20:10:01.100000 ProcessGroupNCCL.cpp:2255] "
        f"{tag.format(rank=rank)} failure detected by "
        f"watchdog at work sequence id: {completed + 1} PG status: last enqueued work: "
        f"{enqueued}, last completed "
        f"work: {completed}. "
    )


def observed(rank: int) -> str:
    return (
        f"[rank{rank}]:[E1129 20:10:01.200000 ProcessGroupNCCL.cpp:1500] "
        f"{DEFAULT.format(rank=rank)} Observed flight "
        "recorder dump signal from another rank via TCPStore."
    )


def read(folder: Path, lines: Iterable[str], world: int | None = 8) -> LogsResult:
    """What a log says of a job of so many ranks."""
    return analyse_logs([write({"job.log": ("\n".join(lines) + "\n").encode()}, folder)], world)


def finding(folder: Path, lines: Iterable[str], world: int | None = 8) -> Finding:
    found = read(folder, lines, world).finding
    assert found is not None
    return found


def accused(folder: Path, lines: Iterable[str], world: int | None = 8) -> set[int]:
    """Culprits and suspects."""
    found = read(folder, lines, world).finding
    return {*found.culprits, *found.suspects} if found else set()


def kind(folder: Path, lines: Iterable[str], world: int | None = 8) -> Kind | None:
    found = read(folder, lines, world).finding
    return found.kind if found else None


def idle(*odd: int, world: int = 8) -> list[str]:
    """All but some wait in 1371; these have nothing pending."""
    peers = [r for r in range(world) if r not in odd]
    lines = [timeout(r) for r in peers] + [progress(r, 1372, 1370) for r in peers]
    return [*lines, *(progress(r, 1370, 1370) for r in odd), *(observed(r) for r in odd)]


def test_who_has_nothing_pending_is_behind(tmp_path: Path) -> None:
    """Seven wait, one never came: it is the culprit, though it reports nothing."""
    found = finding(tmp_path, idle(5))

    assert (found.kind, found.culprits, found.suspects) == (Kind.RANK_STALLED, (5,), ())
    assert (found.where.seq, found.where.op, found.where.group) == (1371, "allreduce", "default_pg")


@pytest.mark.parametrize("first", [0, 3, 7])
def test_the_first_to_report_is_not_the_culprit(first: int, tmp_path: Path) -> None:
    """Whoever signals first is one of those who wait, and that is said."""
    signal = (
        f"[rank{first}]:[E1129 20:09:59.900000 P.cpp:1600] {DEFAULT.format(rank=first)} First "
        "PG on this rank to "
        "signal dumping."
    )

    result = read(tmp_path, [signal, *idle(5)])

    assert result.finding is not None
    assert result.finding.culprits == (5,)
    assert [f"rank {first}," in revision.was for revision in result.revised] == [True]


def test_a_rank_that_is_idle_here_and_waits_elsewhere_is_not_idle(tmp_path: Path) -> None:
    """Enqueued is completed in one group only: in the other it waits as well."""
    lines = [*idle(5), progress(5, 41, 40, tag=TENSOR)]

    found = finding(tmp_path, lines)

    assert found.culprits == ()


def test_a_rank_with_a_timeout_of_its_own_is_not_idle(tmp_path: Path) -> None:
    """Whatever its works say."""
    lines = [*idle(5), timeout(5, tag=TENSOR, seq=40)]

    assert accused(tmp_path, lines) == set()


def test_two_idle_ranks_are_suspects(tmp_path: Path) -> None:
    """They cannot be told apart."""
    found = finding(tmp_path, idle(4, 5))

    assert (found.culprits, found.suspects) == ((), (4, 5))


def test_two_agreeing_peers_of_eight_are_a_suspicion(tmp_path: Path) -> None:
    """Three convict."""
    lines = [timeout(0), timeout(1), progress(5, 1370, 1370)]

    found = finding(tmp_path, lines)

    assert (found.culprits, found.suspects) == ((), (5,))


def test_a_rank_known_by_its_group_only_is_never_convicted(tmp_path: Path) -> None:
    """``Rank 5`` of some group may be anybody."""
    lines = [line for line in idle(5) if not line.startswith("[rank5]")]
    said = (
        "[E1129 20:10:01.1 P.cpp:2] [PG ID 2 PG GUID 7(tp) Rank 5] last enqueued work: 1370, "
        "last completed work: 1370."
    )

    assert finding(tmp_path, [*lines, said]).culprits == ()


def test_garbage_numbers_make_nobody_idle(tmp_path: Path) -> None:
    """More completed than enqueued is not believed."""
    lines = [line for line in idle(5) if not line.startswith("[rank5]")]

    found = finding(tmp_path, [*lines, progress(5, 1369, 1370)])

    assert found.culprits == ()


def test_a_rank_behind_that_waits_itself_left_one_out(tmp_path: Path) -> None:
    """It waits in 1370 where all others wait in 1371."""
    found = finding(tmp_path, [timeout(r, 1370 if r == 5 else 1371) for r in range(8)])

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SKIPPED, (5,))


def test_a_rank_ahead_issued_more(tmp_path: Path) -> None:
    """It waits in 1373 where all others wait in 1371."""
    found = finding(tmp_path, [timeout(r, 1373 if r == 5 else 1371) for r in range(8)])

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_EXTRA, (5,))
    assert "2 more" in found.summary


def test_a_broadcasts_root_may_run_ahead(tmp_path: Path) -> None:
    """It does not wait for those who receive."""
    lines = [timeout(r, 1373 if r == 5 else 1371, op="BROADCAST") for r in range(8)]

    assert accused(tmp_path, lines) == set()


@pytest.mark.parametrize(("agreeing", "culprits"), [(3, (7,)), (2, ())])
def test_three_agreeing_peers_convict_of_unequal_numbers(
    agreeing: int, culprits: tuple[int, ...], tmp_path: Path
) -> None:
    """Two leave it a suspicion."""
    found = finding(tmp_path, [*(timeout(r) for r in range(agreeing)), timeout(7, 1370)])

    assert found.kind is Kind.COLLECTIVE_SKIPPED
    assert found.culprits == culprits


def test_waits_that_did_not_begin_together_are_not_compared(tmp_path: Path) -> None:
    """A later timeout is of a later wait."""
    lines = [timeout(r) for r in range(7)]
    late = timeout(7, 1370, at="20:15:00.100000")

    assert kind(tmp_path, [*lines, late]) is not Kind.COLLECTIVE_SKIPPED


def test_numbers_of_no_named_group_convict_nobody(tmp_path: Path) -> None:
    """Two groups may have the same ranks' timeouts."""
    found = finding(tmp_path, [timeout(r, 1370 if r == 5 else 1371, tag="") for r in range(8)])

    assert found.culprits == ()


def test_one_alone_waits_in_what_its_peers_completed(tmp_path: Path) -> None:
    """The one who reports is the odd one here."""
    lines = [timeout(5), *(progress(r, 1375, 1371) for r in range(8) if r != 5)]

    found = finding(tmp_path, lines)

    assert (found.kind, found.culprits) == (Kind.RANK_STALLED, (5,))


def test_one_alone_whose_host_ran_on_has_a_card_that_stands(tmp_path: Path) -> None:
    """It had enqueued far more: the host is well."""
    lines = [timeout(5), *(progress(r, 1375, 1371) for r in range(8) if r != 5), progress(5, 1380, 1370)]

    assert finding(tmp_path, lines).kind is Kind.GPU_STALLED


def test_all_in_one_collective_is_the_fabric(tmp_path: Path) -> None:
    """Every rank has a timeout of its own at one number with equal arguments: nobody is at fault."""
    found = finding(tmp_path, [timeout(r) for r in range(8)])

    assert (found.kind, found.culprits, found.suspects) == (Kind.FABRIC_STALLED, (), ())


def test_one_missing_is_not_all(tmp_path: Path) -> None:
    """Everybody who is seen is not everybody: the missing one is a suspect."""
    found = finding(tmp_path, [timeout(r) for r in range(7)])

    assert found.kind is Kind.INCONCLUSIVE
    assert (found.culprits, found.suspects) == ((), (7,))


def test_a_group_of_unknown_size_is_no_fabric(tmp_path: Path) -> None:
    """Whether somebody is missing cannot be said."""
    assert kind(tmp_path, [timeout(r) for r in range(4)], world=None) is not Kind.FABRIC_STALLED


def test_an_all_gathers_ratio_gives_the_size_of_its_group(tmp_path: Path) -> None:
    """16384 from 4096 each are four members, in a job of eight."""
    lines = [timeout(r, op="_ALLGATHER_BASE", sizes=(4096, 16384), tag=TENSOR) for r in range(4)]

    assert finding(tmp_path, lines).kind is Kind.FABRIC_STALLED


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ({"sizes": (2048, 2048)}, Kind.COLLECTIVE_SIZE_MISMATCH),
        ({"op": "BROADCAST"}, Kind.COLLECTIVE_TYPE_MISMATCH),
    ],
)
def test_equal_numbers_with_unequal_calls(odd: dict[str, object], expected: Kind, tmp_path: Path) -> None:
    """Three agreeing peers convict the one that differs."""
    lines = [timeout(r, **odd) if r == 2 else timeout(r) for r in range(4)]  # type: ignore[arg-type]

    found = finding(tmp_path, lines, 4)

    assert (found.kind, found.culprits) == (expected, (2,))
    assert found.where.expected is not None
    assert set(found.where.found) == {2}


def test_unequal_calls_of_no_named_group_convict_nobody(tmp_path: Path) -> None:
    """They may be calls of two groups."""
    lines = [timeout(r, sizes=(2048, 2048) if r == 2 else (4096, 4096), tag="") for r in range(4)]

    found = read(tmp_path, lines, 4).finding

    assert found is None or found.culprits == ()


def test_two_against_two_are_all_suspects(tmp_path: Path) -> None:
    """No majority, no culprit."""
    found = finding(tmp_path, [timeout(r, sizes=(4096 * (1 + r % 2),) * 2) for r in range(4)], 4)

    assert (found.culprits, found.suspects) == ((), (0, 1, 2, 3))


@pytest.mark.parametrize(
    "op", ["GATHER", "SCATTER", "ALLTOALL", "ALLTOALL_BASE", "SEND", "RECV", "COALESCED"]
)
def test_operations_that_may_be_uneven_are_no_mismatch(op: str, tmp_path: Path) -> None:
    """Members of these have sizes of their own."""
    lines = [timeout(r, op=op, sizes=(2048 if r == 2 else 4096, 4096)) for r in range(4)]

    assert kind(tmp_path, lines, 4) is not Kind.COLLECTIVE_SIZE_MISMATCH
    assert accused(tmp_path, lines, 4) == set()


@pytest.mark.parametrize("seq", [0, 1])
def test_the_first_collective_of_all_is_a_group_that_never_formed(seq: int, tmp_path: Path) -> None:
    """Nothing was ever completed."""
    found = finding(tmp_path, [timeout(r, seq) for r in range(7)])

    assert (found.kind, found.culprits) == (Kind.INIT_STUCK, ())


def test_a_job_that_made_steps_had_formed(tmp_path: Path) -> None:
    """A small number in a young group is no failed start."""
    lines = ["[rank0]: step: 90  loss:  2.1", *(timeout(r, 1) for r in range(7))]

    assert kind(tmp_path, lines) is not Kind.INIT_STUCK


@pytest.mark.parametrize("op", ["SEND", "RECV", "COALESCED"])
def test_sends_and_receives_number_otherwise(op: str, tmp_path: Path) -> None:
    """Their first number says nothing about the start."""
    lines = [timeout(r, 1, op=op) for r in range(2)]

    assert kind(tmp_path, lines) is not Kind.INIT_STUCK


BARRIER = (
    "[rank{rank}]: RuntimeError: Timed out initializing process group in store based "
    "barrier on rank: {rank}, for "
    "key: store_based_barrier_key:1 (world_size=8, worker_count={workers}, timeout=0:30:00)"
)


def test_who_did_not_come_to_the_stores_barrier_is_a_suspect(tmp_path: Path) -> None:
    """Seven of eight came, seven complain."""
    found = finding(tmp_path, [BARRIER.format(rank=r, workers=7) for r in range(7)])

    assert (found.kind, found.culprits, found.suspects) == (Kind.INIT_STUCK, (), (7,))


def test_more_workers_than_the_world_are_a_stale_store(tmp_path: Path) -> None:
    """They are left from another start; nobody is accused."""
    found = finding(tmp_path, [BARRIER.format(rank=r, workers=16) for r in range(8)])

    assert (found.kind, found.where.how, found.suspects) == (Kind.INIT_STUCK, "stale_store", ())


def test_a_stale_store_after_a_requeue_comes_from_outside(tmp_path: Path) -> None:
    """The requeue is the cause."""
    requeue = "slurmstepd: error: *** JOB 1 ON node-0 CANCELLED AT 2026-01-01T00:00:00 DUE TO JOB REQUEUE ***"

    found = finding(tmp_path, [requeue, *(BARRIER.format(rank=r, workers=16) for r in range(8))])

    assert found.kind is Kind.EXTERNAL_STOP


BEAT = "[rank{rank}]:[F1129 20:10:00.1 P.cpp:1] {tag} [PG ID 0 PG GUID 0(default_pg) Rank {rank}] {says}"
STOPPED = (
    "Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=2"
)


def test_a_heartbeat_that_stopped_on_one_rank_is_a_suspicion(tmp_path: Path) -> None:
    """Before any timeout, its host sits in CUDA."""
    found = finding(tmp_path, [BEAT.format(rank=5, tag="", says=STOPPED)])

    assert (found.kind, found.where.site, found.suspects) == (Kind.RANK_STALLED, "cuda_api", (5,))
    assert found.confidence is Confidence.POSSIBLE


def test_heartbeats_on_several_ranks_name_nobody(tmp_path: Path) -> None:
    """They are an effect."""
    assert accused(tmp_path, [BEAT.format(rank=r, tag="", says=STOPPED) for r in (4, 5)]) == set()


def test_a_heartbeat_after_timeouts_is_an_effect(tmp_path: Path) -> None:
    """All eight wait: the fabric, not the one whose heartbeat stopped as well."""
    found = finding(tmp_path, [*(timeout(r) for r in range(8)), BEAT.format(rank=5, tag="", says=STOPPED)])

    assert found.kind is Kind.FABRIC_STALLED


def test_a_heartbeat_after_some_timeouts_accuses_nobody(tmp_path: Path) -> None:
    """Three of eight wait, the others' logs are not here: the heartbeat is one of the effects."""
    lines = [*(timeout(r) for r in range(3)), BEAT.format(rank=5, tag="", says=STOPPED)]

    assert accused(tmp_path, lines) == set()


def test_the_gil_on_exit_accuses_nobody(tmp_path: Path) -> None:
    """Victims write it, too."""
    line = "[rank5]: Could not acquire GIL within 300 ms on exit, possible GIL induced hang"

    assert accused(tmp_path, [line]) == set()


def test_a_process_that_was_suspended_proves_nothing_by_its_durations(tmp_path: Path) -> None:
    """It ran for an hour with a limit of ten minutes: its wait is still compared by number."""
    lines = [*(timeout(r) for r in range(7)), timeout(7, 1370, ran_ms=3600000)]

    assert finding(tmp_path, lines).suspects + finding(tmp_path, lines).culprits == (7,)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_files_does_not_matter(reverse: bool, tmp_path: Path) -> None:
    """File order is not time order: the same answer from files named the other way round."""
    names = [f"part-{9 - r if reverse else r}.log" for r in range(8)]
    lines = idle(5)
    files = {
        name: "\n".join(line for line in lines if line.startswith(f"[rank{r}]")).encode() + b"\n"
        for r, name in enumerate(names)
    }

    found = analyse_logs([write(files, tmp_path)], 8).finding

    assert found is not None
    assert found.culprits == (5,)
