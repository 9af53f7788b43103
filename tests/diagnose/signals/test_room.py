"""What step records alone say, through the same door as an incident: `diagnose(FOLDER)`."""

import json
import math
import random
import time
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.diagnose.signals.thresholds import DEFAULTS
from harness.model.diagnosis import Diagnosis
from harness.model.errors import UsageError
from harness.model.kinds import Confidence, Kind
from tests.diagnose.signals.made import Job, Record, since


def found(job: Job, folder: Path) -> Diagnosis:
    """The diagnosis of a made-up job's records."""
    return diagnose(job.write(folder)).diagnosis


@pytest.mark.parametrize("culprit", range(8))
@pytest.mark.parametrize("factor", [1.3, 2.0, 5.0])
def test_a_straggler_is_found_by_its_own_time(culprit: int, factor: float, tmp_path: Path) -> None:
    """The rank, how many times slower it is, since when, and what it costs everybody."""
    job = Job(extra=since(100, culprit, seconds=0.1 * (factor - 1)))

    diagnosis = found(job, tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (culprit,))
    assert diagnosis.where.factor == pytest.approx(factor, rel=0.05)
    assert diagnosis.where.step is not None and abs(diagnosis.where.step - 100) <= 4
    assert diagnosis.where.cost is not None and 0 < diagnosis.where.cost < 1
    assert diagnosis.where.site == "compute"


def test_a_straggler_that_always_was_one_is_only_suspected(tmp_path: Path) -> None:
    """A stage of a pipeline may be slower for good: without its role known, growth alone convicts."""
    diagnosis = found(Job(extra=since(0, 3, seconds=0.05)), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.STRAGGLER, (), (3,))
    assert diagnosis.confidence is Confidence.POSSIBLE


def test_two_ranks_that_became_slow_together_are_suspects(tmp_path: Path) -> None:
    """A host with two bad cards, or a stage of the model that grew: records alone do not say which."""
    diagnosis = found(Job(extra=since(100, 2, 3, seconds=0.08)), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.STRAGGLER, (), (2, 3))


@pytest.mark.parametrize("times", [1.5, 3.0, 8.0])
def test_a_part_that_always_took_longer_is_not_convicted_when_all_grow(times: float, tmp_path: Path) -> None:
    """A longer sequence, a larger batch: every rank's work grows alike, and the slowest stays the slowest."""

    def own(rank: int, step: int) -> float:
        usual = 0.15 if rank in (6, 7) else 0.1
        return usual * (times if step >= 100 else 1.0)

    diagnosis = found(Job(compute_s=0.0, extra=own), tmp_path)

    assert diagnosis.culprits == ()


def test_a_rank_does_not_become_slow_by_quicker_peers(tmp_path: Path) -> None:
    """Others warmed up; its own time is what it was."""
    quick = since(0, *range(7), seconds=0.0)
    job = Job(extra=lambda r, s: 0.05 if r == 7 or s < 100 else quick(r, s))

    assert found(job, tmp_path).culprits == ()


def test_lateness_that_goes_round_convicts_nobody(tmp_path: Path) -> None:
    """Every fifty steps another rank has the most to do, as experts have that become popular."""
    job = Job(steps=400, extra=lambda rank, step: 0.08 if rank == step // 50 % 8 else 0.0)

    assert found(job, tmp_path).culprits == ()


def test_a_past_that_is_not_known_convicts_nobody(tmp_path: Path) -> None:
    """The rank's records begin late: whether it grew cannot be said."""

    def forget(rank: int, step: int, record: Record) -> None:
        if rank == 5 and step < 90:
            del record["comm_wait_s"], record["compute_s"]

    diagnosis = found(Job(extra=since(100, 5, seconds=0.1), change=forget), tmp_path)

    assert (diagnosis.culprits, diagnosis.suspects) == ((), (5,))


def test_a_reader_that_always_waited_for_data_is_a_suspect(tmp_path: Path) -> None:
    """One rank reads for the others, from the start."""
    diagnosis = found(Job(extra=since(0, 0, seconds=0.06), part="data_wait_s"), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.DATA_STARVED, (), (0,))


def test_a_rank_crowded_out_by_others_is_a_straggler_of_its_host(tmp_path: Path) -> None:
    """More involuntary switches than its peers have: the core is shared."""

    def crowd(rank: int, step: int, record: Record) -> None:
        record["preemptions"] = 40 if rank == 6 and step >= 100 else 1

    diagnosis = found(Job(extra=since(100, 6, seconds=0.1), change=crowd), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.site) == (Kind.STRAGGLER, (6,), "host")


def test_one_starved_rank_is_the_culprit(tmp_path: Path) -> None:
    """Everybody waits for the rank whose batches are late."""
    diagnosis = found(Job(extra=since(100, 4, seconds=0.05), part="data_wait_s"), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.DATA_STARVED, (4,))


def test_all_starved_ranks_are_nobodys_fault(tmp_path: Path) -> None:
    """The source of the data is slow for all: no rank is accused."""
    diagnosis = found(Job(extra=since(100, *range(8), seconds=0.05), part="data_wait_s"), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.DATA_STARVED, (), ())


def test_a_slower_network_is_nobodys_fault(tmp_path: Path) -> None:
    """Computing unchanged, every rank's exposed wait grown."""

    def congest(rank: int, step: int, record: Record) -> None:
        if step >= 100:
            record["comm_wait_s"] = float(record["comm_wait_s"]) + 0.06
            record["step_time_s"] = float(record["step_time_s"]) + 0.06

    diagnosis = found(Job(change=congest), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.COMM_SLOW, (), ())


def test_fragmentation_grows_while_use_is_flat(tmp_path: Path) -> None:
    """Inactive bytes rise window by window; the remedy is named."""

    def split(rank: int, step: int, record: Record) -> None:
        if rank == 2 and step >= 60:
            record["mem_inactive_split"] = int(record["mem_inactive_split"]) + (step - 60) * (100 << 20)
            record["mem_reserved_peak"] = int(record["mem_reserved_peak"]) + (step - 60) * (100 << 20)
            record["num_alloc_retries"] = (step - 60) // 10

    diagnosis = found(Job(change=split), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.MEMORY_FRAGMENTATION, (2,))
    assert any("expandable_segments" in r.do for r in diagnosis.recommendations)


def test_a_leak_grows_by_the_step(tmp_path: Path) -> None:
    """Resident memory of one rank rises in every window."""

    def keep(rank: int, step: int, record: Record) -> None:
        record["rss_shared_bytes"] = 1 << 30
        if rank == 7:
            record["rss_bytes"] = int(record["rss_bytes"]) + step * (3 << 20)

    diagnosis = found(Job(change=keep), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.HOST_MEMORY_LEAK, (7,))


@pytest.mark.parametrize("known", [True, False])
def test_pages_of_files_are_no_leak(known: bool, tmp_path: Path) -> None:
    """A loader maps its shard: resident memory grows. Where pages of files are not told apart, a suspect."""

    def read(rank: int, step: int, record: Record) -> None:
        mapped = step * (3 << 20) if rank == 7 else 0
        record["rss_bytes"] = int(record["rss_bytes"]) + mapped
        if known:
            record["rss_shared_bytes"] = (1 << 30) + mapped

    diagnosis = found(Job(change=read), tmp_path)

    assert (diagnosis.culprits, diagnosis.suspects) == ((), () if known else (7,))


def test_memory_that_fills_up_is_no_leak(tmp_path: Path) -> None:
    """A cache: it grows ever more slowly, and stays."""

    def fill(rank: int, step: int, record: Record) -> None:
        record["rss_shared_bytes"] = 1 << 30
        record["rss_bytes"] = int(record["rss_bytes"]) + int((1 - math.exp(-step / 40)) * (4 << 30))

    assert found(Job(change=fill), tmp_path).kind is Kind.HEALTHY


def test_memory_that_steps_up_once_is_no_leak(tmp_path: Path) -> None:
    """A cache that fills at step 100 and then stays is not growing."""

    def fill(rank: int, step: int, record: Record) -> None:
        if step >= 100:
            record["rss_bytes"] = int(record["rss_bytes"]) + (4 << 30)

    assert found(Job(change=fill), tmp_path).kind is Kind.HEALTHY


def test_a_flood_of_output_is_found_where_steps_are_slow(tmp_path: Path) -> None:
    """Ten times the output and more than 64 KiB a step."""

    def flood(rank: int, step: int, record: Record) -> None:
        if rank == 1 and step >= 100:
            record["stdout_bytes"] = int(record["stdout_bytes"]) + (step - 99) * 200_000

    slow = Job(extra=since(100, 1, seconds=0.05), part="rest", change=flood)

    diagnosis = found(slow, tmp_path / "slow")
    assert (diagnosis.kind, diagnosis.culprits) == (Kind.LOG_FLOOD, (1,))
    assert found(Job(change=flood), tmp_path / "quick").kind is Kind.HEALTHY


def test_a_rank_slow_in_host_code_is_a_straggler_with_that_site(tmp_path: Path) -> None:
    """Neither computing nor data nor output: the rest of its step is longer than its peers'."""
    diagnosis = found(Job(extra=since(100, 5, seconds=0.05), part="rest"), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.site) == (Kind.STRAGGLER, (5,), "host")


def test_steps_that_became_longer_for_no_recorded_reason_are_not_healthy(tmp_path: Path) -> None:
    """Step times alone, three times as long: the records do not say why, and that is said."""
    job = Job(
        extra=since(100, *range(8), seconds=0.2),
        leave_out=("compute_s", "comm_wait_s", "data_wait_s", "digest"),
    )

    diagnosis = found(job, tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.INCONCLUSIVE, (), ())
    assert "steps take" in diagnosis.summary and "at first" in diagnosis.summary


def test_half_of_the_ranks_are_no_few(tmp_path: Path) -> None:
    """One of two hosts became slow: its ranks are named in the sentence, and none is accused."""
    diagnosis = found(Job(extra=since(100, 4, 5, 6, 7, seconds=0.1)), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.INCONCLUSIVE, (), ())


def test_records_of_every_tenth_step_are_looked_at(tmp_path: Path) -> None:
    """A window holds ten records, however far apart they are."""
    job = Job(steps=1000, extra=since(500, 3, seconds=0.1))
    for rank, records in job.records().items():
        (tmp_path / f"rank_{rank}.jsonl").write_text(
            "".join(json.dumps(r) + "\n" for r in records if int(r["step"]) % 10 == 0)
        )

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (3,))


def test_the_network_is_not_blamed_while_a_rank_is_missing(tmp_path: Path) -> None:
    """All wait for a rank whose records are lost: it looks like slow messages."""
    Job(extra=since(100, 7, seconds=0.1)).write(tmp_path)
    (tmp_path / "attempt_0" / "rank_7.jsonl").unlink()

    diagnosis = diagnose(tmp_path, world_size=8).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.INCONCLUSIVE, ())


def test_slow_saves_name_the_writer(tmp_path: Path) -> None:
    """All wait for the save; whose own part grew is the writer."""

    def late(rank: int, step: int, record: Record) -> None:
        if "ckpt_duration_s" in record and step >= 100:
            record["ckpt_duration_s"] = 8.0
            if rank == 3:
                record["ckpt_write_s"] = 7.5

    diagnosis = found(Job(save_every=10, change=late), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.step) == (Kind.CHECKPOINT_SLOW, (3,), 109)


def test_failed_saves_name_the_rank_that_counts_them(tmp_path: Path) -> None:
    """A count that rises on one rank alone."""

    def fail(rank: int, step: int, record: Record) -> None:
        if "ckpt_duration_s" in record:
            record["ckpt_failed_total"] = max(0, (step - 99) // 10) if rank == 6 else 0

    diagnosis = found(Job(save_every=10, change=fail), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.CHECKPOINT_FAILED, (6,))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_loss_that_is_not_finite_is_traced_to_its_rank_and_step(word: str, tmp_path: Path) -> None:
    """One rank has it first; the exchange makes it everybody's in the next step."""

    def spoil(rank: int, step: int, record: Record) -> None:
        if step > 50 or (rank == 5 and step == 50):
            record["loss"] = word
        if step >= 50:
            record["grad_norm"] = "NaN"

    diagnosis = found(Job(steps=60, change=spoil), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.step) == (Kind.LOSS_NOT_FINITE, (5,), 50)
    assert diagnosis.evidence[0].line == 51


def test_a_loss_averaged_over_ranks_accuses_nobody(tmp_path: Path) -> None:
    """It is not finite on all ranks at once, and says nothing of whose it was."""

    def spoil(rank: int, step: int, record: Record) -> None:
        if step >= 50:
            record["loss"] = "NaN"

    diagnosis = found(Job(steps=60, change=spoil), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.LOSS_NOT_FINITE, ())


def test_a_gradient_that_the_loss_scaler_skipped_is_its_work(tmp_path: Path) -> None:
    """fp16 overflows now and then: the step is skipped, and the scale halved."""

    def overflow(rank: int, step: int, record: Record) -> None:
        record["skipped"] = step % 37 == 0
        if record["skipped"]:
            record["grad_norm"] = "Infinity"

    assert found(Job(change=overflow), tmp_path).kind is Kind.HEALTHY


def test_an_odd_digest_convicts_among_three_replicas(tmp_path: Path) -> None:
    """Seven agree, one holds other bits from a step on."""

    def flip(rank: int, step: int, record: Record) -> None:
        if rank == 4 and step >= 77:
            record["digest"] = f"{step:016x}"

    diagnosis = found(Job(change=flip), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.step) == (Kind.SILENT_CORRUPTION, (4,), 77)


def test_two_replicas_that_part_are_both_suspects(tmp_path: Path) -> None:
    """Nobody can tell which of two is right."""

    def flip(rank: int, step: int, record: Record) -> None:
        if rank == 1 and step >= 77:
            record["digest"] = f"{step:016x}"

    diagnosis = found(Job(ranks=2, change=flip), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.SILENT_CORRUPTION, (), (0, 1))


def test_shards_are_never_compared(tmp_path: Path) -> None:
    """Ranks that never agreed need not agree; replicas of one shard must."""

    def shard(rank: int, step: int, record: Record) -> None:
        odd = rank == 6 and step >= 90
        record["digest"] = f"{(rank % 2) * 1000 + step + odd * 7:016x}"

    diagnosis = found(Job(change=shard), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.SILENT_CORRUPTION, (6,))


def test_samples_read_again_after_a_resume(tmp_path: Path) -> None:
    """Of two starts of the job, the second goes on at a checkpoint; one rank begins its shard anew."""
    Job(steps=60).write(tmp_path)

    def rewind(rank: int, step: int, record: Record) -> None:
        if rank == 2:
            record["consumed_samples"] = (step - 40 + 1) * 16

    second = Job(steps=40, first=40, change=rewind)
    folder = tmp_path / "attempt_1"
    folder.mkdir()
    for rank, records in second.records().items():
        (folder / f"rank_{rank}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.step) == (Kind.DATA_CORRUPT, (2,), 40)


def test_a_restart_inside_one_file_is_a_second_start(tmp_path: Path) -> None:
    """Steps that go back are another attempt, appended to the same file by somebody's restart."""
    place = tmp_path / "attempt_0"
    place.mkdir()
    whole, rest = Job(steps=60).records(), Job(steps=60, first=40, seed=1).records()
    for rank in range(8):
        lines = "".join(json.dumps(r) + "\n" for r in (*whole[rank], *rest[rank]))
        (place / f"rank_{rank}.jsonl").write_text(lines)

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.job.last_step) == (Kind.HEALTHY, 99)


def test_a_rank_that_stopped_while_others_went_on_is_a_suspect(tmp_path: Path) -> None:
    """The records alone: no step on rank 3 for minutes, and others reached later ones."""
    Job(steps=60).write(tmp_path)
    place = tmp_path / "attempt_0"
    for rank in range(8):
        path = place / f"rank_{rank}.jsonl"
        lines = path.read_text().splitlines()
        if rank == 3:
            lines = lines[:50]
        else:
            late = json.loads(lines[-1])
            late["t"] += 500
            lines[-1] = json.dumps(late)
        path.write_text("\n".join(lines) + "\n")

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.RANK_STALLED, (), (3,))


@pytest.mark.parametrize("seed", range(20))
def test_healthy_jobs_are_called_healthy(seed: int, tmp_path: Path) -> None:
    """Jitter, slow first steps, checkpoints, evaluations, a few fields missing, any number of ranks."""
    dice = random.Random(seed)
    job = Job(
        ranks=dice.choice([1, 2, 3, 4, 8, 16, 32]),
        steps=dice.choice([5, 20, 40, 80, 200, 400]),
        jitter=dice.choice([0.0, 0.02, 0.05]),
        data_s=dice.choice([0.0001, 0.001, 0.002]),
        exchange_s=dice.choice([0.0005, 0.01, 0.05]),
        save_every=dice.choice([0, 10]),
        evaluate_every=dice.choice([0, 25]),
        seed=seed,
        leave_out=tuple(dice.sample(["digest", "comm_wait_s", "compute_s", "rss_bytes", "step_time_s"], 2)),
    )

    diagnosis = found(job, tmp_path)

    assert diagnosis.kind is Kind.HEALTHY, diagnosis.summary


def damage(path: Path, dice: random.Random) -> None:
    """Tear, garble, double and drop lines, as killed writers and full disks do."""
    lines = path.read_bytes().splitlines(keepends=True)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(lines))
        what = dice.randrange(6)
        if what == 0:
            lines[at] = b"\x00" * 40 + b"\n"
        elif what == 1:
            lines[at] = lines[at][: dice.randrange(1, 40)] + b"\n"
        elif what == 2:
            lines.insert(at, lines[at])
        elif what == 3:
            del lines[at]
        elif what == 4:
            lines[at] = b'{"step": "x", "t": null, "rank": []}\n'
        else:
            lines[at] = b"\xff\xfe not json\n"
    lines[-1] = lines[-1][: dice.randrange(len(lines[-1]))]
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("seed", range(10))
def test_damaged_records_change_no_answer(seed: int, tmp_path: Path) -> None:
    """Torn, garbled, doubled and lost lines of every file, and a rank without any."""
    dice = random.Random(seed)
    Job(extra=since(100, 5, seconds=0.1), seed=seed).write(tmp_path)
    for path in sorted((tmp_path / "attempt_0").iterdir()):
        damage(path, dice)
    (tmp_path / "attempt_0" / "rank_0.jsonl").unlink()

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (5,))
    assert any("no step records of rank 0" in line for line in diagnosis.missing_evidence)


def test_a_clock_that_jumps_is_said_and_changes_nothing(tmp_path: Path) -> None:
    """Wall clocks are set now and then; measured step times are not."""

    def jump(rank: int, step: int, record: Record) -> None:
        if rank == 2 and step >= 80:
            record["t"] = float(record["t"]) - 7200

    diagnosis = found(Job(extra=since(100, 5, seconds=0.1), change=jump), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (5,))
    assert any("clock of rank 2 jumped by -7200 s" in line for line in diagnosis.missing_evidence)


def test_records_that_end_together_just_now_may_be_of_a_hang(tmp_path: Path) -> None:
    """No step for minutes, on any rank: it hangs or has ended, and that is what is said."""
    shift = time.time() - 600 - Job(steps=60).records()[0][-1]["t"]  # type: ignore[operator]

    def recent(rank: int, step: int, record: Record) -> None:
        record["t"] = float(record["t"]) + shift

    diagnosis = found(Job(steps=60, change=recent), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.INCONCLUSIVE, (), ())
    assert "no rank has completed a step for 600" in diagnosis.summary
    assert any("py-spy" in step for step in diagnosis.next_steps)


def test_every_threshold_can_be_set(tmp_path: Path) -> None:
    """A straggler of 1.3 is none where 1.5 is asked for; a wrong name says which there are."""
    Job(extra=since(100, 5, seconds=0.03)).write(tmp_path)

    assert diagnose(tmp_path).diagnosis.culprits == (5,)
    patient = DEFAULTS.with_values(["straggler_factor=1.5"])
    assert diagnose(tmp_path, limits=patient).diagnosis.culprits == ()
    with pytest.raises(UsageError, match="there are: window_steps"):
        DEFAULTS.with_values(["stragler=2"])
    with pytest.raises(UsageError, match="a whole number above 0"):
        DEFAULTS.with_values(["window_steps=many"])
