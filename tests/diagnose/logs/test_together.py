"""Dumps, logs, stacks, kernel logs in one call: each decides what it knows best, contradictions are shown."""

from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Confidence, Kind
from tests.diagnose.test_nodes import node
from tests.simulate import Scenario, Shape
from tests.test_corpus import unpacked

DEFAULT = "[PG ID 0 PG GUID 0(default_pg) Rank {r}]"


def dumps(folder: Path, fault: str) -> int:
    """The dumps of an incident of eight ranks; who is guilty."""
    scenario = Scenario(fault, Shape(dp=8), 1)
    scenario.write(folder / "dumps")
    return scenario.culprit


def log(folder: Path, text: str, name: str = "logs/job.log") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def raised(rank: int, what: str) -> str:
    """A traceback of one rank."""
    return (
        f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "
        '"/job/train.py", line 7, in main\n'
        f"[rank{rank}]: {what}\n"
    )


def idle(odd: int) -> str:
    """Seven wait, one has nothing pending: the logs name it."""
    peers = [r for r in range(8) if r != odd]
    waiting = "".join(
        f"[rank{r}]: {DEFAULT.format(r=r)} Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1371, "
        "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600049 "
        "milliseconds before timing out.\n"
        for r in peers
    )
    return (
        f"{waiting}[rank{odd}]: {DEFAULT.format(r=odd)} last enqueued work: 1370, last "
        "completed work: 1370. \n"
    )


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."


def against(found: Diagnosis) -> list[str]:
    """What is listed as speaking against the answer."""
    return [ruled.because for ruled in found.ruled_out if ruled.because.startswith("against this")]


def test_dumps_and_logs_that_agree(tmp_path: Path) -> None:
    """The dumps say which collective, the logs are cited beside them, and nothing is revised."""
    guilty = dumps(tmp_path, "size")
    log(tmp_path, idle(guilty))

    found = diagnose(tmp_path).diagnosis

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SIZE_MISMATCH, (guilty,))
    assert found.confidence is Confidence.CERTAIN
    assert {c.source for c in found.evidence} == {"flight_recorder", "log"}
    assert (against(found), found.revised) == ([], ())


def test_dumps_outrank_logs_on_which_collective(tmp_path: Path) -> None:
    """The logs name another rank: that is listed, lowers the confidence, and is said as a revision."""
    guilty = dumps(tmp_path, "size")
    other = (guilty + 1) % 8
    log(tmp_path, idle(other))

    found = diagnose(tmp_path).diagnosis

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SIZE_MISMATCH, (guilty,))
    assert found.confidence is Confidence.LIKELY
    assert [f"rank {other}" in because for because in against(found)] == [True]
    assert [f"rank {other}" in revision.was for revision in found.revised] == [True]


def test_logs_outrank_dumps_on_who_died(tmp_path: Path) -> None:
    """A rank without a dump is a suspect; its own exception convicts it, and says of what."""
    guilty = dumps(tmp_path, "lost")
    log(tmp_path, raised(guilty, OOM))

    alone, found = diagnose(tmp_path / "dumps").diagnosis, diagnose(tmp_path).diagnosis

    assert (alone.kind, alone.culprits, alone.suspects) == (Kind.INCONCLUSIVE, (), (guilty,))
    assert (found.kind, found.culprits) == (Kind.DEVICE_OOM, (guilty,))


def test_a_death_that_the_dumps_speak_against(tmp_path: Path) -> None:
    """The dumps convict another rank: it is listed, and the confidence falls."""
    guilty = dumps(tmp_path, "size")
    log(tmp_path, raised((guilty + 1) % 8, "KeyError: 'loss'"))

    found = diagnose(tmp_path).diagnosis

    assert found.culprits == ((guilty + 1) % 8,)
    assert [f"rank {guilty}" in because for because in against(found)] == [True]
    assert found.confidence is Confidence.LIKELY


def test_a_death_of_the_rank_that_the_dumps_name(tmp_path: Path) -> None:
    """Both accuse one: nothing speaks against it."""
    guilty = dumps(tmp_path, "size")
    log(tmp_path, raised(guilty, "KeyError: 'loss'"))

    found = diagnose(tmp_path).diagnosis

    assert (found.kind, found.culprits, against(found)) == (Kind.SOFTWARE_ERROR, (guilty,), [])


def test_suspects_of_the_logs_do_not_unseat_a_conviction_by_dumps(tmp_path: Path) -> None:
    """Two failures that no clock orders are suspects; the dumps convict."""
    guilty = dumps(tmp_path, "size")
    one, other = (guilty + 1) % 8, (guilty + 2) % 8
    log(tmp_path, raised(one, "KeyError: 'loss'"), "logs/a.log")
    log(tmp_path, raised(other, "ValueError: bad"), "logs/b.log")

    found = diagnose(tmp_path).diagnosis

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SIZE_MISMATCH, (guilty,))


def test_symptoms_in_logs_do_not_unseat_the_dumps(tmp_path: Path) -> None:
    """Lost communication and aborts are what a hang's end makes of everybody."""
    guilty = dumps(tmp_path, "stall")
    lost = "torch.distributed.DistBackendError: NCCL error: remote process exited"
    log(tmp_path, "".join(raised(r, lost) for r in range(8) if r != guilty))

    found = diagnose(tmp_path).diagnosis

    assert (found.kind, found.culprits) == (Kind.RANK_STALLED, (guilty,))


def test_a_stop_from_outside_in_the_logs_leaves_a_mismatch_in_the_dumps(tmp_path: Path) -> None:
    """A time limit ends a hang too: without a step near it the dumps decide."""
    guilty = dumps(tmp_path, "size")
    cancel = (
        "slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-08-08T03:09:30 DUE TO TIME LIMIT ***\n"
    )
    log(tmp_path, idle(guilty) + cancel)

    found = diagnose(tmp_path).diagnosis

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SIZE_MISMATCH, (guilty,))


STARTS = "".join(
    f"node-0:{100 + r}:99 [{r}] NCCL INFO comm 0x7f rank {r} nranks 8 cudaDev {r} busId "
    f"{r + 1}b000 - Init COMPLETE\n"
    for r in range(8)
)


def test_the_kernels_word_on_a_card_outranks_what_dumps_show(tmp_path: Path) -> None:
    """The fabric seems to stand still; one card fell off the bus, and its rank is named by its bus id."""
    dumps(tmp_path, "fabric")
    log(tmp_path, STARTS)
    kernel = (
        "Aug  8 03:12:43 node-0 kernel: NVRM: Xid (PCI:0000:4b:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    log(tmp_path, kernel, "logs/kern.log")

    found = diagnose(tmp_path, world_size=8).diagnosis

    assert (found.kind, found.culprits) == (Kind.HARDWARE_FAULT, (3,))
    assert "kernel" in {c.source for c in found.evidence}
    assert found.at[3].host == "node-0"


def test_the_size_that_dumps_record_counts_for_logs(tmp_path: Path) -> None:
    """So that a communicator of eight is known to be the one of all ranks, and its cards to be theirs."""
    dumps(tmp_path, "fabric")
    kernel = (
        "Aug  8 03:12:43 node-0 kernel: NVRM: Xid (PCI:0000:4b:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    log(tmp_path, STARTS)
    log(tmp_path, kernel, "logs/kern.log")

    assert diagnose(tmp_path).diagnosis.culprits == (3,)


def test_logs_beside_a_bundle_convict_what_its_stacks_show(tmp_path: Path) -> None:
    """Both name rank 5: the stacks say where, the logs are cited beside them."""
    bundle = node(tmp_path / "a", range(8), culprit=5)
    log(tmp_path, idle(5))

    found = diagnose(bundle, tmp_path / "logs").diagnosis

    assert (found.kind, found.culprits) == (Kind.RANK_STALLED, (5,))
    assert {c.source for c in found.evidence} == {"stack", "log"}


def test_logs_against_stacks_lower_the_confidence(tmp_path: Path) -> None:
    """Stacks show rank 5 in its own code, logs name rank 2."""
    bundle = node(tmp_path / "a", range(8), culprit=5)
    log(tmp_path, idle(2))

    alone, found = diagnose(bundle).diagnosis, diagnose(bundle, tmp_path / "logs").diagnosis

    assert found.culprits == (5,)
    assert (alone.confidence, found.confidence) == (Confidence.LIKELY, Confidence.POSSIBLE)
    assert [("rank 2" in r.was, "stack" in r.because) for r in found.revised] == [(True, True)]


def test_a_death_that_stacks_speak_against(tmp_path: Path) -> None:
    """Rank 2 was sampled in a collective with its peers, alive: that it ran out of memory is not certain."""
    bundle = node(tmp_path / "a", range(8), culprit=5)
    log(tmp_path, raised(2, OOM))

    found = diagnose(bundle, tmp_path / "logs").diagnosis

    assert found.confidence is not Confidence.CERTAIN


def test_logs_of_another_place_beside_a_recorded_bundle(tmp_path: Path) -> None:
    """A log that says nothing of a cause changes nothing."""
    bundle = unpacked("skip", tmp_path)
    log(tmp_path, "[rank0]: hello\n")

    found = diagnose(bundle, tmp_path / "logs").diagnosis

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SKIPPED, (5,))


def test_the_first_to_signal_is_openly_revised(tmp_path: Path) -> None:
    """Logs alone: the loudest line names rank 0, the answer is rank 5."""
    signal = f"[rank0]: {DEFAULT.format(r=0)} First PG on this rank to signal dumping.\n"
    log(tmp_path, signal + idle(5))

    found = diagnose(tmp_path, world_size=8).diagnosis

    assert found.culprits == (5,)
    assert [(r.was.startswith("rank 0,"), r.now.startswith("rank 5")) for r in found.revised] == [
        (True, True)
    ]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (idle(5), "hung"),
        (raised(2, OOM), "crashed"),
        ("".join(f"[rank{r}]: Training complete\n" for r in range(8)) + idle(5), "finished"),
        ("[rank0]: step: 90  loss:  2.1\n", "running"),
        pytest.param(
            "[rank0]: step: 90  loss:  2.1\n[rank0]: Training complete\n",
            "finished",
        ),
        (
            "2026-08-08 03:09:00,000 [rank0]: step: 90  loss:  2.1\n2026-08-08 03:09:10,000 "
            "slurmstepd: error: *** STEP "
            "1.0 ON node-0 CANCELLED AT 2026-08-08T03:09:10 DUE TO PREEMPTION ***\n",
            "stopped",
        ),
        (
            raised(2, "KeyError: 'loss'")
            + "[agent] restart_count=1 group_rank=0\n"
            + raised(2, "KeyError: 'loss'"),
            "restarting",
        ),
    ],
)
def test_the_state_of_the_job(text: str, state: str, tmp_path: Path) -> None:
    """As the logs say it."""
    log(tmp_path, text)

    assert diagnose(tmp_path, world_size=8).diagnosis.job.state == state


def test_the_job_by_its_logs(tmp_path: Path) -> None:
    """Size, last step, start, hosts; and the lines that they rest on."""
    text = (
        "2026-08-08 03:00:00,000 using world size: 8, data-parallel size: 2\n"
        f"{STARTS}2026-08-08 03:09:00,000 [rank0]: step: 90  loss:  2.1\n"
    )
    log(tmp_path, text + raised(2, OOM))

    found = diagnose(tmp_path).diagnosis

    assert (found.job.last_step, found.job.nodes, found.ranks.expected) == (90, 1, 8)
    assert found.job.started is not None
    assert any("world size 8" in stated.says for stated in found.job.stated)
    assert (found.at[2].host, found.at[2].pid) == ("node-0", 102)


def test_logs_that_show_no_cause_say_what_to_collect(tmp_path: Path) -> None:
    """Inconclusive is the right answer, with the next steps."""
    log(tmp_path, "[rank0]: hello\n[rank1]: Connection reset by peer\n")

    found = diagnose(tmp_path).diagnosis

    assert (found.kind, found.culprits, found.suspects) == (Kind.INCONCLUSIVE, (), ())
    assert found.next_steps


def test_without_a_stated_size_it_is_asked_for(tmp_path: Path) -> None:
    """Who is missing cannot be known: the summary says how to state it."""
    log(tmp_path, "\n".join(line for line in idle(5).splitlines() if "rank5" not in line) + "\n")

    found = diagnose(tmp_path).diagnosis

    assert found.kind is Kind.INCONCLUSIVE
    assert "--world-size" in found.summary


def test_a_good_end_without_times_is_not_called_healthy(tmp_path: Path) -> None:
    """How fast it was, nobody knows."""
    log(tmp_path, "[rank0]: step: 90  loss:  2.1\n[rank0]: Training complete\n")

    assert diagnose(tmp_path).diagnosis.kind is Kind.INCONCLUSIVE


def test_evidence_that_the_scheduler_dropped_is_missing(tmp_path: Path) -> None:
    """Ray left out the same line of seven others: that is said, and how to keep them."""
    text = f"(Trainer pid=123, ip=10.0.0.1) {raised(2, OOM).splitlines()[2]} [repeated 7x across cluster]\n"
    log(tmp_path, text)

    found = diagnose(tmp_path, world_size=8).diagnosis

    assert any("RAY_DEDUP_LOGS=0" in missing for missing in found.missing_evidence)


def test_silent_ranks_are_missing_and_fetched(tmp_path: Path) -> None:
    """Their logs are asked for first."""
    log(tmp_path, raised(2, OOM) + "".join(f"[rank{r}]: hello\n" for r in range(7)))

    found = diagnose(tmp_path, world_size=8).diagnosis

    assert found.ranks.missing == "7"
    assert any("rank 7 has no log" in missing for missing in found.missing_evidence)


@pytest.mark.parametrize("junk", [b"\0" * 5000, b"\x80\x04junk", b"\xff\xfe\xff", b"{" * 5000, b""])
def test_damaged_files_beside_good_ones_change_nothing(junk: bytes, tmp_path: Path) -> None:
    """Nothing raises; the rest is still read."""
    guilty = dumps(tmp_path, "size")
    log(tmp_path, idle(guilty))
    (tmp_path / "logs/broken.log").write_bytes(junk)
    (tmp_path / "dumps/nccl_trace_rank_99").write_bytes(junk)

    found = diagnose(tmp_path).diagnosis

    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SIZE_MISMATCH, (guilty,))
